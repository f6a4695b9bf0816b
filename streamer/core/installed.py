"""Optional packages: whether one is there, and how to install it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
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
