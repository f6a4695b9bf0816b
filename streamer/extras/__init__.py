"""Optional parts of streamer, which the rooms import only through the table below.

Each extra is a folder of its own. No room names their modules: it asks for an entry point by its
name, and the extra is imported then.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

ENTRY_POINTS = {
    "coach": "coach.options:Coach",
    "coach.live": "coach.session:SessionCoach",
    "coach.page": "coach:PAGE",
    "director.options": "fleet.command:DirectorOptions",
    "fleet.options": "fleet.command:FleetOptions",
    "fleet.tables": "fleet.command:TABLES",
    "fleet.tickets": "fleet.tickets:Tickets",
    "tune.options": "tune.command:TuneOptions",
    "director": "fleet.command:direct",
    "fleet": "fleet.command:run",
    "large": "large.engine:load_few_bits",
    "large.prepared": "large.engine:Prepared",
    "mcp": "mcp.server:run",
    "mcp.options": "mcp.server:McpOptions",
    "otel": "otel.spans:tracing",
    "tune": "tune.command:run",
}
# package -> the extra of pyproject.toml that brings it
BRINGS = {
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
}


def load(name: str) -> Any:
    """Import and return the entry point `name` of ENTRY_POINTS."""
    module, _, attribute = ENTRY_POINTS[name].partition(":")
    return getattr(import_module(f"{__name__}.{module}"), attribute)


def missing(purpose: str, *packages: str) -> str | None:
    """One line that says which of `packages` cannot be imported, though `purpose` needs it, and how
    to install it. None if all can be; then they are imported."""
    for name in packages:
        try:
            import_module(name)
        except ImportError:
            extra = BRINGS[name]
            return f"{purpose} needs {name}; in a clone of streamer: pip install '.[{extra}]'"
        except OSError as error:  # a library of the system that it loads
            return f"{purpose} needs {name}, which cannot be loaded ({error})"
    return None
