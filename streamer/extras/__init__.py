"""Optional parts of streamer, which the core imports only through the table below.

Each extra is a folder of its own. The core names none of their modules: it asks for an entry point
by its name, and the extra is imported then.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

ENTRY_POINTS = {
    "coach": "coach.options:Coach",
    "coach.live": "coach.session:SessionCoach",
    "director.options": "fleet.options:DirectorOptions",
    "fleet.options": "fleet.options:FleetOptions",
    "fleet.tables": "fleet.options:TABLES",
    "tune.options": "tune.options:TuneOptions",
    "director": "fleet.command:direct",
    "fleet": "fleet.command:run",
    "large": "large.prepared:load_few_bits",
    "large.prepared": "large.prepared:Prepared",
    "mcp": "mcp.server:run",
    "mcp.options": "mcp.options:McpOptions",
    "otel": "otel.spans:tracing",
    "tune": "tune.command:run",
}


def load(name: str) -> Any:
    """Import and return the entry point `name` of ENTRY_POINTS."""
    module, _, attribute = ENTRY_POINTS[name].partition(":")
    return getattr(import_module(f"{__name__}.{module}"), attribute)
