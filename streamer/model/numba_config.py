"""Keeps numba from reading a configuration file in the working directory.

numba reads `./.numba_config.yaml` when it is imported and again with every compilation. The file
may name a cache directory, whose files numba unpickles: a downloaded folder could run code. numba
has no option against it, so its name for the file is replaced while `numba.core.config` is loaded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

MODULE = "numba.core.config"
CONFIG_FILE = ".numba_config.yaml"
NO_FILE = os.devnull  # exists, and is no regular file: numba passes over it in silence


class _Loader(SourceFileLoader):
    """Loads numba's configuration with NO_FILE in place of CONFIG_FILE."""

    def get_code(self, fullname: str) -> CodeType | None:
        code = super().get_code(fullname)
        if code is None:
            return None
        constants = (NO_FILE if value == CONFIG_FILE else value for value in code.co_consts)
        return code.replace(co_consts=tuple(constants))


class _Finder(MetaPathFinder):
    """Gives `_Loader` to the one module."""

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


def ignore_config_file() -> None:
    """Call before numba is imported. A numba that the program imported earlier keeps its settings,
    and does not read the file again."""
    config: Any = sys.modules.get(MODULE)
    if config is None:
        if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
            sys.meta_path.insert(0, _Finder())
    elif config._config_fname != NO_FILE:
        config._config_fname = NO_FILE
        settings = {name: value for name, value in os.environ.items() if name[:6] == "NUMBA_"}
        config._env_reloader.old_environ = settings  # else the next compilation would reset all
