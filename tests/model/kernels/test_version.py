"""Compiled kernels are kept on disk per version of every file that ends up in them."""

import ast
from pathlib import Path

import streamer.model.kernels
from streamer.model.kernels.arithmetic import _VERSION
from streamer.model.kernels.work import work

PACKAGE = Path(streamer.model.kernels.__file__).parents[2]
KERNELS = Path(streamer.model.kernels.__file__).parent


def imported(file):
    """Our modules that a file takes something from when it is loaded."""
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("streamer."):
            yield node.module


def test_every_file_that_a_kernel_is_made_of_is_in_its_version():
    """The version is the digest of the folder: nothing compiled stands or reaches outside it."""
    marks = {"@compiled", "@part"}
    compiled = {f for f in PACKAGE.rglob("*.py") if marks & set(f.read_text("utf-8").split())}
    assert KERNELS / "write.py" in compiled
    assert {file.parent for file in compiled} == {KERNELS}
    for file in compiled:
        outside = {m for m in imported(file) if not m.startswith("streamer.model.kernels")}
        assert not outside, file


def test_the_version_is_in_the_name_that_numba_keeps_a_kernel_under():
    assert _VERSION in work._cache._impl.filename_base
