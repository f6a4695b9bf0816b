"""Optional packages: whether one is there, and how to install it.

matplotlib must not read `./matplotlibrc`: nothing of the working directory configures us, and the
file might be a pipe that never ends. matplotlib has no option against it, so the file's name is
replaced while matplotlib is loaded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

# package -> the extra of pyproject.toml that brings it
EXTRAS = {
    "torch": "torch",
    "transformers": "torch",
    "huggingface_hub": "torch",
    "peft": "tune",
    "ray": "scale",
    "mcp": "mcp",
    "opentelemetry.sdk.trace": "otel",
    "opentelemetry.exporter.otlp.proto.http": "otel",
    "matplotlib": "plot",
    "pyarrow": "parquet",
    "sounddevice": "listen",
    "rich": "listen",
}


def missing(purpose: str, *packages: str) -> str | None:
    """One line that says which of `packages` cannot be imported, though `purpose` needs it, and how
    to install it. None if all can be; then they are imported."""
    for name in packages:
        try:
            import_module(name)
        except ImportError:
            extra = EXTRAS[name]
            return f"{purpose} needs {name}; in a clone of streamer: pip install '.[{extra}]'"
        except OSError as error:  # a library of the system that it loads
            return f"{purpose} needs {name}, which cannot be loaded ({error})"
    return None


def data_frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """A DataFrame of pandas, or else of polars. Raises ImportError if neither is installed."""
    for name in ("pandas", "polars"):
        with suppress(ImportError):
            return import_module(name).DataFrame(rows)
    raise ImportError("a frame needs pandas or polars; install one of them")


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
