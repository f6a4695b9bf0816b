"""Write the timeline of a Description, or of a call's, as .json, .vtt, .TextGrid or .png."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from streamer.config import ConfigError
from streamer.core.conversation import Conversation, conversation, marks_between
from streamer.core.description import Description
from streamer.core.timeline import Timeline, captions
from streamer.extras import missing

KINDS = (".json", ".vtt", ".textgrid", ".png")  # of the suffix in lower case
NAMES = ".json, .vtt, .TextGrid or .png"
Interval = tuple[float, float, str]
Entry = Mapping[str, float | str]  # of a tier: the names of its fields and their values
SPEECH, PAUSE = "speech", "pause"


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
    if path.is_dir() or not os.access(path.absolute().parent, os.W_OK):
        raise ConfigError(f"timeline {path} cannot be written there; give another place")
    is_picture = path.suffix.lower() == ".png"
    if is_picture and (why := missing("a timeline in .png", "matplotlib")) is not None:
        raise ConfigError(f"{why}; or give another ending")


def _write(found: Sequence[Description], path: Path, kind: str) -> str | None:
    channels = [each.timeline for each in found if each.timeline is not None]
    between = conversation(found)
    if kind == ".png":
        from streamer.timeline_plot import draw

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


def textgrid(channels: Sequence[Timeline]) -> str:
    """The text of a TextGrid (long form, to be written as UTF-8) of three tiers for each channel:

    `speech` (intervals, each "speech", "pause" or ""), `syllables` (points, one near the middle of
    each syllable that is counted) and `sentence` (intervals, one for each turn). With several
    channels their names end with the channel's number, and a tier `between` has "overlap" and
    "dead air".
    """
    end = max(each.duration_s for each in channels)
    is_call = len(channels) > 1
    tiers = []
    for each in channels:
        name = f" {each.channel}" if is_call else ""
        points: list[Entry] = [{"number": t, "mark": ""} for t in each.curves.nuclei_s]
        turns = [(turn.start_s, turn.end_s, turn.text) for turn in each.turns]
        tiers += [
            _tier("intervals", f"speech{name}", _speech(each, end), end),
            _tier("points", f"syllables{name}", points, end),
            _tier("intervals", f"sentence{name}", _filled(turns, end), end),
        ]
    if is_call:
        tiers.append(_tier("intervals", "between", _filled(marks_between(channels), end), end))
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', ""]
    lines += [*_fields({"xmin": 0.0, "xmax": end}), "tiers? <exists>"]
    lines += [f"size = {len(tiers)}", "item []:"]
    for number, tier in enumerate(tiers, 1):
        lines += [f"    item [{number}]:", *(f"        {line}" for line in tier)]
    return "\n".join(lines) + "\n"


def _tier(kind: str, name: str, entries: Sequence[Entry], end: float) -> Iterator[str]:
    """The lines of a tier of "intervals" or of "points"."""
    of = {"intervals": "IntervalTier", "points": "TextTier"}[kind]
    yield from _fields({"class": of, "name": name, "xmin": 0.0, "xmax": end})
    yield f"{kind}: size = {len(entries)}"
    for number, entry in enumerate(entries, 1):
        yield f"{kind} [{number}]:"
        yield from (f"    {line}" for line in _fields(entry))


def _fields(entry: Entry) -> Iterator[str]:
    for name, value in entry.items():
        quoted = '"' + value.replace('"', '""') + '"' if isinstance(value, str) else f"{value:.6f}"
        yield f"{name} = {quoted}"


def _speech(timeline: Timeline, duration_s: float) -> list[Entry]:
    """From the first speech to the last, with its pauses; "" before and after."""
    curves = timeline.curves
    if (span := curves.span_s) is None:
        return _filled([], duration_s)
    at, found = span[0], []
    for begin, end in curves.pauses_s:
        found += [(at, begin, SPEECH), (begin, end, PAUSE)]
        at = end
    return _filled([*found, (at, span[1], SPEECH)], duration_s)


def _filled(intervals: Sequence[Interval], end: float) -> list[Entry]:
    """The intervals with empty ones between them, so that they fill 0 to `end`, as Praat wants."""
    at = 0.0
    found: list[Interval] = []
    for begin, stop, text in intervals:
        begin, stop = max(at, begin), min(end, stop)
        if stop <= begin:
            continue
        if begin > at:
            found.append((at, begin, ""))
        found.append((begin, stop, text))
        at = stop
    found += [(at, end, "")] if at < end else []
    return [{"xmin": begin, "xmax": stop, "text": text} for begin, stop, text in found]
