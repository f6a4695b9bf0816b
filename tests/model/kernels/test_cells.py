"""Each number that Python writes for a kernel, or a kernel for Python, has one name and one place."""

import ast
from pathlib import Path

import pytest

import streamer.model.kernels
from streamer.model.kernels import cells
from streamer.model.kernels.cells import ATTENTION, BOOK, LANE, PRODUCT, SPAN, TEXT, TOWER

FOLDER = Path(streamer.model.kernels.__file__).parent
SHARED = {"PRODUCT": PRODUCT, "ATTENTION": ATTENTION}
TABLES = {"TEXT": TEXT, "TOWER": TOWER, "LANE": LANE, "SPAN": SPAN, "BOOK": BOOK, **SHARED}
ARRAYS = ("own", "job", "lane", "spans", "book", "board")


def tree(name):
    return ast.parse((FOLDER / name).read_text("utf-8"))


def named(name, table):
    """The names of a table that a file uses: `TEXT.keys`."""
    return {
        node.attr
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == table
    }


def put_in(name, of):
    """The keywords of all calls of `of` in a file."""
    calls = [node for node in ast.walk(tree(name)) if isinstance(node, ast.Call)]
    return [
        keyword.arg for call in calls if ast.unparse(call.func) in of for keyword in call.keywords
    ]


@pytest.mark.parametrize("table", TABLES)
def test_places_are_contiguous_and_names_unique(table):
    assert list(TABLES[table]) == list(range(len(TABLES[table])))
    assert len(set(TABLES[table]._fields)) == len(TABLES[table])


@pytest.mark.parametrize(("file", "table"), [("text.py", "TEXT"), ("tower.py", "TOWER")])
def test_what_a_job_writes_is_what_its_kernel_reads(file, table):
    """lanes and later are written where somebody writes and where nobody does: twice."""
    written = put_in(file, ("self._job.put", "job.put"))
    assert (
        set(written)
        == named("work.py", table) | named("phases.py", table)
        == set(TABLES[table]._fields)
    )
    assert {name for name in written if written.count(name) > 1} <= {"lanes", "later"}


@pytest.mark.parametrize("table", SHARED)
def test_what_is_shared_in_few_bits_is_written_once_and_read(table):
    written, read = [], set()
    for node in ast.walk(tree("few_bits_share.py")):
        if isinstance(node, ast.Subscript) and ast.unparse(node.slice).startswith(f"{table}."):
            name = ast.unparse(node.slice).removeprefix(f"{table}.")
            written += [name] * isinstance(node.ctx, ast.Store)
            read |= {name} if isinstance(node.ctx, ast.Load) else set()
    assert sorted(written) == sorted(read) == sorted(SHARED[table]._fields)


def test_what_a_writer_brings_is_what_its_kernel_reads():
    """`home` is the kernel's own: where it found the step's first logits."""
    brought = {"home", *put_in("lane.py", ("put",)), *named("lane.py", "LANE")}
    assert brought == set(LANE._fields)
    assert named("write.py", "LANE") == set(LANE._fields)


def test_no_kernel_reads_a_number_by_a_number():
    """`own[12]` would compile whatever stands there."""
    for file in sorted(FOLDER.glob("*.py")):
        for node in ast.walk(tree(file.name)):
            if isinstance(node, ast.Subscript) and ast.unparse(node.value) in ARRAYS:
                assert not isinstance(node.slice, ast.Constant), f"{file.name}:{node.lineno}"


def test_a_wrong_name_does_not_compile():
    from numba import njit
    from numba.core.errors import TypingError

    read = njit(lambda own: own[TEXT.kyes])
    with pytest.raises(TypingError, match="kyes"):
        read.compile("(int64[:],)")
    with pytest.raises(AttributeError, match="kyes"):
        cells.put([0], TEXT, kyes=1)
