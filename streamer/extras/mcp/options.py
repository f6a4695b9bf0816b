"""The options of `streamer mcp`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from streamer.config import ConfigError
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

    def __post_init__(self) -> None:
        super().__post_init__()
        for folder in self.allow:
            if not Path(folder).expanduser().is_dir():
                raise ConfigError(f"--allow is {folder!r}; that is no folder")
