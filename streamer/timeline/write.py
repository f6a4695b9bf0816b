"""Write the timeline of a Description as .json, .vtt, .TextGrid or .png."""

from __future__ import annotations

import json
import os
from pathlib import Path

from streamer.config import ConfigError
from streamer.core.description import Description
from streamer.core.installed import missing
from streamer.core.timeline import Timeline
from streamer.timeline.textgrid import textgrid

KINDS = (".json", ".vtt", ".textgrid", ".png")  # of the suffix in lower case
NAMES = ".json, .vtt, .TextGrid or .png"


def write_timeline(found: Description, path: str | Path) -> str | None:
    """Write the timeline of `describe(..., measures=True)` to a path in .json, .vtt,
    .TextGrid or .png.

    Returns a line if something is left out, such as Chinese sentences without a font. Raises
    ConfigError, ValueError for a Description without measures, and OSError.
    """
    check_target(path)
    timeline = found.timeline
    if timeline is None:
        raise ValueError(f"{found.file} was not measured; describe it with measures=True")
    path = Path(path)
    new = path.with_name(path.name + ".new")
    try:
        told = _write(timeline, new, path.suffix.lower())
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
        raise ConfigError(f"{why}; the others do not")


def _write(timeline: Timeline, path: Path, kind: str) -> str | None:
    if kind == ".png":
        from streamer.timeline.plot import draw

        return draw(timeline, path)
    if kind == ".vtt":
        path.write_text(timeline.as_vtt(), "utf-8")
    elif kind == ".textgrid":
        path.write_text(textgrid(timeline), "utf-8")
    else:
        # a name that is no UTF-8 has \udcXX in it; as such an escape strict readers refuse it
        told = timeline.as_json()
        told["file"] = told["file"].encode(errors="backslashreplace").decode()
        path.write_text(json.dumps(told, ensure_ascii=False) + "\n", "utf-8")
    return None
