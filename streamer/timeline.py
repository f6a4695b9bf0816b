"""Write the timeline of a Description, or of a call's, as .json, .vtt, .TextGrid or .png."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from streamer.config import ConfigError
from streamer.core.conversation import conversation, marks_between
from streamer.core.description import Description
from streamer.core.timeline import Timeline, captions
from streamer.extras import missing

Stretch = tuple[float, float, str]  # begin and end in s, text


def write_timeline(found: Description | Sequence[Description], path: str | Path) -> str | None:
    """Write the timeline of `describe(..., measures=True)` to a path in .json, .vtt,
    .TextGrid or .png. Several descriptions are the channels of one call, each described alone.

    Returns a line if something is left out, such as Chinese sentences without a font. Raises
    ConfigError, ValueError for a Description without measures, and OSError.
    """
    check_target(path)
    given = [found] if isinstance(found, Description) else list(found)
    if not given:
        raise ValueError("no description is given; give one, or one for each channel")
    channels = []
    for each in given:
        if (timeline := each.timeline) is None:
            raise ValueError(f"{each.file} was not measured; describe it with measures=True")
        channels.append(timeline)
    path, between, left_out = Path(path), conversation(given), None
    new = path.with_name(path.name + ".new")
    try:
        match path.suffix.lower():
            case ".png":
                from streamer.timeline_plot import draw

                left_out = draw(channels, new, "" if between is None else str(between))
            case ".vtt":
                new.write_text(captions(channels), "utf-8")
            case ".textgrid":
                new.write_text(textgrid(channels), "utf-8")
            case _:
                row = channels[0].as_json()
                if len(channels) > 1:
                    marks = marks_between(channels)
                    row = {
                        "version": row["version"],
                        "file": row["file"],
                        "duration_s": round(max(each.duration_s for each in channels), 3),
                        "conversation": between and between.as_json(),
                        "between": [{"start_s": a, "end_s": b, "kind": k} for a, b, k in marks],
                        "channels": [each.as_json() for each in channels],
                    }
                new.write_text(json.dumps(row, ensure_ascii=False) + "\n", "utf-8")
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
    return left_out


def check_target(path: str | Path) -> None:
    """Raises ConfigError if a timeline cannot be written to `path`."""
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in (".json", ".vtt", ".textgrid", ".png"):
        raise ConfigError(f"timeline is {path}; give a name in .json, .vtt, .TextGrid or .png")
    if path.is_dir() or not os.access(path.absolute().parent, os.W_OK):
        raise ConfigError(f"timeline {path} cannot be written there; give another place")
    if kind == ".png" and (why := missing("a timeline in .png", "matplotlib")) is not None:
        raise ConfigError(f"{why}; or give another ending")


def textgrid(channels: Sequence[Timeline]) -> str:
    """The text of a TextGrid (long form, to be written as UTF-8) of three tiers for each channel:

    `speech` (intervals, each "speech", "pause" or ""), `syllables` (points, one near the middle of
    each syllable that is counted) and `sentence` (intervals, one for each turn). With several
    channels their names end with the channel's number, and a tier `between` has "overlap" and
    "dead air".
    """
    end = max(each.duration_s for each in channels)
    tiers = []
    for each in channels:
        tiers += _tiers_of(each, f" {each.channel}" if len(channels) > 1 else "", end)
    if len(channels) > 1:
        marks = _intervals(marks_between(channels), end)
        tiers.append(_tier("IntervalTier", "between", end, marks))
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', ""]
    lines += ["xmin = 0.000000", f"xmax = {end:.6f}", "tiers? <exists>"]
    lines += [f"size = {len(tiers)}", "item []:"]
    for at, tier in enumerate(tiers, 1):
        lines += [f"    item [{at}]:", *(f"        {line}" for line in tier)]
    return "\n".join(lines) + "\n"


def _tiers_of(channel: Timeline, number: str, end: float) -> list[list[str]]:
    """The lines of a channel's three tiers, whose names end with `number`."""
    speech = [(a, b, "speech") for a, b in channel.curves.talk_s]
    speech += [(a, b, "pause") for a, b in channel.curves.pauses_s]
    points = [[f"number = {t:.6f}", 'mark = ""'] for t in channel.curves.nuclei_s]
    turns = [(turn.start_s, turn.end_s, turn.text) for turn in channel.turns]
    return [
        _tier("IntervalTier", f"speech{number}", end, _intervals(sorted(speech), end)),
        _tier("TextTier", f"syllables{number}", end, points),
        _tier("IntervalTier", f"sentence{number}", end, _intervals(turns, end)),
    ]


def _tier(kind: str, name: str, end: float, entries: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a tier. entries: the lines of each."""
    plural = "points" if kind == "TextTier" else "intervals"
    lines = [f'class = "{kind}"', f'name = "{name}"', "xmin = 0.000000", f"xmax = {end:.6f}"]
    lines.append(f"{plural}: size = {len(entries)}")
    for at, entry in enumerate(entries, 1):
        lines += [f"{plural} [{at}]:", *(f"    {line}" for line in entry)]
    return lines


def _intervals(stretches: Sequence[Stretch], end: float) -> list[list[str]]:
    """The lines of each, and of empty ones between them: Praat wants 0 to `end` filled."""
    at = 0.0
    found: list[Stretch] = []
    for begin, stop, text in [*stretches, (end, end, "")]:
        begin, stop = min(end, max(at, begin)), max(at, min(end, stop))
        found += [(at, begin, ""), (begin, stop, text.replace('"', '""'))]
        at = stop
    return [
        [f"xmin = {begin:.6f}", f"xmax = {stop:.6f}", f'text = "{text}"']
        for begin, stop, text in found
        if begin < stop
    ]
