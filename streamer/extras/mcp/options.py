"""The options of `streamer mcp`."""

from __future__ import annotations

from dataclasses import dataclass

from streamer.core.declare import REQUIRED, Checked, option


@dataclass(frozen=True, kw_only=True)
class McpOptions(Checked):
    """Offer describe, measure and compare as tools, over stdin and stdout. Needs
    `pip install '.[mcp]'`."""

    files: tuple[str, ...] = option(REQUIRED, metavar="DIR", positional=True)
    """a folder whose recordings may be heard, with its subfolders"""
