"""Benches and tests watch through seams: they replace no private name, and no method of a class or
of an object of ours. What stands between two of ours is bench/watched.py's."""

import ast

import pytest
from places import ROOT

# A module's constants and functions are passed by name; these are objects of others.
OF_OTHERS = {"of_admission.time", "font_manager.fontManager"}
REPLACES = {  # file -> what it still replaces; this list only gets shorter
    "tests/model/audio/test_turn_cutter.py": {"VoiceActivity.push"},
    "tests/extras/tune/test_place.py": {"Path.write_text"},  # a full disk
    "bench/generate_arms.py": {"config._compile_all_devices"},  # transformers' own switch
}
READS = {  # the same of private names that benches read
    "bench/peers_exported.py": {
        "text._rotary",
        "text._heads",
        "text._rms",
    }  # one step, for exporters
}
FILES = sorted(file for folder in ("bench", "tests") for file in (ROOT / folder).rglob("*.py"))


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def is_class(name):
    return name[0].isupper() and not name.isupper()


def patched(call):
    """(what, name) of a call of setattr; name "" where it is not written there."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "setattr"):
        return None
    target, *rest = call.args
    if isinstance(target, ast.Constant):
        what, _, name = target.value.rpartition(".")
        return what.rpartition(".")[2] or what, name
    name = rest[0].value if isinstance(rest[0], ast.Constant) else ""
    return ast.unparse(target), name


def replaced(tree):
    """What a file replaces that it should not."""
    modules = {
        alias.asname or alias.name
        for n in ast.walk(tree)
        if isinstance(n, ast.Import | ast.ImportFrom)
        for alias in n.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (found := patched(node)) is not None:
            what, name = found
            is_object = "." in what and what not in OF_OTHERS
            if is_private(name) or is_class(what) or is_object:
                yield f"{what}.{name}"
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            what = ast.unparse(node.value)
            is_own = what in ("self", "cls")
            if not is_own and ((is_class(what) and what in modules) or is_private(node.attr)):
                yield f"{what}.{node.attr}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_nothing_private_and_no_method_is_replaced(file):
    name = str(file.relative_to(ROOT))
    assert set(replaced(ast.parse(file.read_text("utf-8")))) == REPLACES.get(name, set())


NOT_OURS = ("torch.", "config._compile_all_devices")  # of torch and of transformers


@pytest.mark.parametrize("file", sorted((ROOT / "bench").glob("*.py")), ids=lambda f: f.name)
def test_a_bench_reads_nothing_private(file):
    found = {
        ast.unparse(node)
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
        and is_private(node.attr)
        and ast.unparse(node.value) not in ("self", "cls")
        and not ast.unparse(node).startswith(NOT_OURS)
    }
    assert found == READS.get(f"bench/{file.name}", set())
