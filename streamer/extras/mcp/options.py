"""The options of `streamer mcp`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from streamer.core.declare import Checked, about


@dataclass(frozen=True, kw_only=True)
class McpOptions(Checked):
    """Options of `streamer mcp`."""

    allow: Annotated[
        tuple[str, ...],
        about(
            "folder whose recordings may be heard, with its subfolders; may be repeated",
            "~/recordings",
            metavar="DIR",
        ),
    ]
