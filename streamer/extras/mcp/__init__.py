"""`streamer mcp`: how people speak, as tools of the Model Context Protocol.

server.py has the tools, and the fence of allowed folders; the package `mcp` is imported there.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamer.core.declare import REQUIRED, option


@dataclass(frozen=True, kw_only=True)
class McpOptions:
    """Offer describe, measure and compare as tools, over stdin and stdout. Needs
    `pip install '.[mcp]'`."""

    files: tuple[str, ...] = option(REQUIRED, metavar="DIR", positional=True)
