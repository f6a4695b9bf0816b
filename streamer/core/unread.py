"""Keeps matplotlib from reading `./matplotlibrc`: nothing of the working directory configures us.

The file might be a pipe that never ends. matplotlib has no option against it, so the file's name
is replaced while matplotlib is loaded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

MODULE = "matplotlib"
FUNCTION, FILE = "gen_candidates", "matplotlibrc"  # that names the file
NO_FILE = os.devnull  # exists, and holds nothing


class _Loader(SourceFileLoader):
    """Loads matplotlib with NO_FILE in place of its file."""

    def get_code(self, fullname: str) -> CodeType | None:
        code = super().get_code(fullname)
        return None if code is None else _without_file(code)


def _without_file(code: CodeType) -> CodeType:
    constants: list[Any] = []
    for value in code.co_consts:
        if isinstance(value, CodeType):
            value = _without_file(value)
        constants.append(NO_FILE if value == FILE and code.co_name == FUNCTION else value)
    return code.replace(co_consts=tuple(constants))


class _Finder(MetaPathFinder):
    """Gives `_Loader` to matplotlib."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def ignore_matplotlibrc() -> None:
    """Call before matplotlib is imported; one that is imported already has read the file."""
    if MODULE not in sys.modules and not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
