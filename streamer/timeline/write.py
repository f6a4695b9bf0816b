"""Write the timeline of a Description, or of a call's, as .json, .vtt, .TextGrid or .png."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamer.config import ConfigError
from streamer.core.conversation import Conversation, conversation, marks_between
from streamer.core.description import Description
from streamer.core.installed import missing
from streamer.core.timeline import Timeline, captions
from streamer.timeline.textgrid import textgrid

KINDS = (".json", ".vtt", ".textgrid", ".png")  # of the suffix in lower case
NAMES = ".json, .vtt, .TextGrid or .png"


def write_timeline(found: Description | Sequence[Description], path: str | Path) -> str | None:
    """Write the timeline of `describe(..., measures=True)` to a path in .json, .vtt,
    .TextGrid or .png. Several descriptions are the channels of one call, each described alone.

    Returns a line if something is left out, such as Chinese sentences without a font. Raises
    ConfigError, ValueError for a Description without measures, and OSError.
    """
    check_target(path)
    channels = [found] if isinstance(found, Description) else list(found)
    if not channels:
        raise ValueError("no description is given; give one, or one for each channel")
    for each in channels:
        if each.timeline is None:
            raise ValueError(f"{each.file} was not measured; describe it with measures=True")
    path = Path(path)
    new = path.with_name(path.name + ".new")
    try:
        told = _write(channels, new, path.suffix.lower())
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
    return told


def check_target(path: str | Path) -> None:
    """Raises ConfigError if a timeline cannot be written to `path`."""
    path = Path(path)
    if path.suffix.lower() not in KINDS:
        raise ConfigError(f"timeline is {path}; give a name in {NAMES}")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"timeline {path}: there is no directory {path.parent}; make it first")
    if path.is_dir() or not os.access(path.absolute().parent, os.W_OK):
        raise ConfigError(f"timeline {path} cannot be written there; give another place")
    is_picture = path.suffix.lower() == ".png"
    if is_picture and (why := missing("a timeline in .png", "matplotlib")) is not None:
        raise ConfigError(f"{why}; or give another ending")


def _write(found: Sequence[Description], path: Path, kind: str) -> str | None:
    channels = [each.timeline for each in found if each.timeline is not None]
    between = conversation(found)
    if kind == ".png":
        from streamer.timeline.plot import draw

        return draw(channels, path, "" if between is None else str(between))
    if kind == ".vtt":
        path.write_text(captions(channels), "utf-8")
    elif kind == ".textgrid":
        path.write_text(textgrid(channels), "utf-8")
    else:
        told = _as_json(channels, between)
        path.write_text(json.dumps(told, ensure_ascii=False) + "\n", "utf-8")
    return None


def _as_json(channels: Sequence[Timeline], between: Conversation | None) -> dict[str, Any]:
    rows = [each.as_json() for each in channels]
    for row in rows:
        # a name that is no UTF-8 has \udcXX in it; as such an escape strict readers refuse it
        row["file"] = row["file"].encode(errors="backslashreplace").decode()
    if len(rows) == 1:
        return rows[0]
    marks = marks_between(channels)
    return {
        **{name: rows[0][name] for name in ("version", "file")},
        "duration_s": max(row["duration_s"] for row in rows),
        "conversation": between and between.as_json(),
        "between": [{"start_s": a, "end_s": b, "kind": kind} for a, b, kind in marks],
        "channels": rows,
    }
