"""Compiled kernels are kept on disk per version of every file that ends up in them."""

import ast
from pathlib import Path

import streamer.model
from streamer.model.kernels.arithmetic import _SOURCES, _VERSION
from streamer.model.kernels.work import work

MODEL = Path(streamer.model.__file__).parent
NO_CODE = {"crew"}  # imported beside kernels, by jobs.py: Python alone


def imported(name):
    """Modules of streamer.model that a module of it takes something from when it is loaded."""
    for node in ast.parse((MODEL / f"{name}.py").read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module == "streamer.model":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("streamer.model."):
            yield node.module.rsplit(".", 1)[1]


def test_every_file_that_a_kernel_is_made_of_is_in_its_version():
    compiled = {file.stem for file in MODEL.glob("*.py") if {"@compiled", "@part"} & set(file.read_text("utf-8").split())}
    assert "kernels_write" in compiled
    assert compiled <= set(_SOURCES)
    for name in compiled:
        assert set(imported(name)) - NO_CODE <= set(_SOURCES), name


def test_the_version_is_in_the_name_that_numba_keeps_a_kernel_under():
    assert _VERSION in work._cache._impl.filename_base
