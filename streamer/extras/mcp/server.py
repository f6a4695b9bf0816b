"""Tools for agents: `describe`, `measure`, `compare`, of recordings in allowed folders. The package
`mcp` is imported when they are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamer
from streamer import Describer, Description
from streamer.commands.compare import differences_of
from streamer.config import Config, ConfigError
from streamer.core.attributes import Language
from streamer.core.declare import REQUIRED, option
from streamer.extras import missing

if TYPE_CHECKING:
    from mcp.server import MCPServer

INSTRUCTIONS = (
    "How somebody speaks: rate, pitch, intonation, loudness, pauses, timbre and arousal, with "
    "numbers. It does not transcribe, and says nothing of a feeling's cause."
)


@dataclass(frozen=True, kw_only=True)
class McpOptions:
    """Offer describe, measure and compare as tools, over stdin and stdout. Needs
    `pip install '.[mcp]'`."""

    files: tuple[str, ...] = option(REQUIRED, metavar="DIR", positional=True)


async def run(options: McpOptions, config: Config) -> int:
    """Serve over stdin and stdout until the client closes them. Raises ConfigError."""
    if (why := missing("streamer mcp", "mcp")) is not None:
        raise ConfigError(why)
    folders = [Path(folder).expanduser() for folder in options.files]
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"{folder} is no folder; give one that holds recordings")
    async with Describer.open(config) as describer:
        await server(folders, describer).run_stdio_async()
    return 0


def server(folders: Sequence[Path], describer: Describer) -> MCPServer:
    """The server. Models load at the first call and stay loaded. folders: those that it may
    read."""
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    fence = [folder.resolve() for folder in folders]
    tools = MCPServer("streamer", version=streamer.__version__, instructions=INSTRUCTIONS)

    async def heard(path: str, language: Language | None = None) -> Description:
        try:
            file = inside(fence, path)
            return await describer.describe(file, measures=True, language=language)
        except (ValueError, streamer.AudioError, streamer.ModelError, streamer.TargetLost) as error:
            raise ToolError(str(error)) from None

    @tools.tool()
    async def describe(path: str, language: Language | None = None) -> dict[str, Any]:
        """One sentence on how the person in a recording speaks, with the label, number, unit and
        certainty of each attribute. path: an audio file in an allowed folder. language: of the
        sentence and the labels, zh or en; left out, the sentence is in the model's first language
        and the labels are in English."""
        found = await heard(path, language)
        return {
            "sentence": found.text,
            "in_english": streamer.voice_line(found),
            "attributes": streamer.voice_profile(found, language or "en"),
            "seconds": round(found.audio_s, 2),
            "warning": found.warning,
        }

    @tools.tool()
    async def measure(path: str) -> dict[str, Any]:
        """The numbers alone, with units in their names: syllables per second, Hz, semitones, dB,
        shares and seconds. path: an audio file in an allowed folder."""
        found = await heard(path)
        return found.measures.as_json() if found.measures else {}

    @tools.tool()
    async def compare(first: str, second: str, language: Language | None = None) -> dict[str, Any]:
        """Two recordings, such as two takes: for each attribute both levels and numbers, the
        difference, second less first, with its error, and a verdict in words. language: of the
        levels' names, zh or en; left out, the model's first."""
        return differences_of(await heard(first, language), await heard(second, language))

    return tools


def inside(fence: Sequence[Path], path: str) -> Path:
    """The file at `path`, links followed. A relative path is looked up in the folders of `fence`,
    in order. Raises ValueError for a file outside these folders."""
    # an impossible path, a loop of links or an unknown home is no recording either
    with suppress(OSError, RuntimeError, ValueError):
        given = Path(path).expanduser()
        for folder in fence:
            found = (folder / given).resolve()  # an absolute path stays as it is
            if found.is_file() and any(found.is_relative_to(folder) for folder in fence):
                return found
    folders = ", ".join(map(str, fence))
    raise ValueError(f"{path[:280]}: no recording in the allowed folders ({folders})")
