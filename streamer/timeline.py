"""Write the timeline of a Description, or of a call's, as .json, .vtt, .TextGrid or .png."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamer.config import ConfigError
from streamer.core.description import Description
from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.core.text.chinese import comma, told
from streamer.core.timeline import Conversation, Span, Timeline, conversation
from streamer.extras import missing


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
    path, call, left_out = Path(path), conversation(given), None
    new = path.with_name(path.name + ".new")
    try:
        match path.suffix.lower():
            case ".png":
                from streamer.timeline_plot import draw

                left_out = draw(channels, new, str(call or ""))
            case ".vtt":
                new.write_text(captions(channels), "utf-8")
            case ".textgrid":
                new.write_text(textgrid(channels, call.between if call else ()), "utf-8")
            case _:
                row = json_of(channels, call)
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


def json_of(channels: Sequence[Timeline], call: Conversation | None) -> dict[str, Any]:
    """Plain types: of a recording, or of all channels of a call."""
    rows = [each.as_json() for each in channels]
    if len(rows) == 1:
        return rows[0]
    marks = call.between if call else ()
    return {
        "version": rows[0]["version"],
        "file": rows[0]["file"],
        "duration_s": max(row["duration_s"] for row in rows),
        "conversation": call and call.as_json(),
        "between": [{"start_s": a, "end_s": b, "kind": kind} for a, b, kind in marks],
        "channels": rows,
    }


def captions(channels: Sequence[Timeline]) -> str:
    """WebVTT of the channels of a recording: a cue for each turn with speech, its sentence above
    its measures; of several, a cue's voice is its channel."""
    cues = ["WEBVTT\n"]
    turns = [(turn, each.channel) for each in channels for turn in each.turns if turn.text]
    for number, (turn, channel) in enumerate(sorted(turns, key=lambda pair: pair[0].start_s), 1):
        when = f"{_clock(turn.start_s)} --> {_clock(turn.end_s)}"
        voice = f"<v channel {channel}>" if len(channels) > 1 else ""
        lines = (" ".join(turn.text.split()), told_of(turn.measures, turn.language))
        cue = html.escape("\n".join(filter(None, lines)), quote=False)
        cues.append(f"{number}\n{when}\n{voice}{cue}\n")
    return "\n".join(cues)


def _clock(seconds: float) -> str:
    """hh:mm:ss.ttt, as in WebVTT."""
    ms = round(1000 * seconds)
    return f"{ms // 3_600_000:02d}:{ms // 60_000 % 60:02d}:{ms // 1000 % 60:02d}.{ms % 1000:03d}"


def main_measures(m: SpeechMeasures) -> tuple[tuple[str, float | None], ...]:
    """The most important measures, each with its form; those of an interval have no pauses."""
    return (
        ("{:.1f} syllables/s", m.rate_syllables_per_s),
        ("{:.0f} Hz", m.pitch_median_hz),
        ("SD {:.1f} semitones", m.pitch_sd_semitones),
        ("{:.0f} dBFS", m.level_dbfs),
    )


def told_of(m: SpeechMeasures, language: str) -> str:
    """The most important measures in one line, without unknown ones."""
    pauses = None if m.pause_share is None else 100 * m.pause_share
    parts = (*main_measures(m), ("{:.0f} % pauses", pauses))
    known = [told(language, form, value) for form, value in parts if value is not None]
    return comma(language).join(known)


def textgrid(channels: Sequence[Timeline], marks: Sequence[Span]) -> str:
    """The text of a TextGrid (long form, to be written as UTF-8) of three tiers for each channel:

    `speech` (intervals, each "speech", "pause" or ""), `syllables` (points, one near the middle of
    each syllable that is counted) and `sentence` (intervals, one for each turn). With several
    channels their names end with the channel's number, and a tier `between` has the `marks` of the
    call.
    """
    end = max(each.duration_s for each in channels)
    tiers = []  # name, kind of entries, the lines of each
    for each in channels:
        suffix = f" {each.channel}" if len(channels) > 1 else ""
        speech = [(a, b, "speech") for a, b in each.curves.talk_s]
        speech += [(a, b, "pause") for a, b in each.curves.pauses_s]
        points = [[f"number = {t:.6f}", 'mark = ""'] for t in each.curves.nuclei_s]
        turns = [(turn.start_s, turn.end_s, turn.text) for turn in each.turns]
        tiers.append((f"speech{suffix}", "intervals", _intervals(sorted(speech), end)))
        tiers.append((f"syllables{suffix}", "points", points))
        tiers.append((f"sentence{suffix}", "intervals", _intervals(turns, end)))
    if len(channels) > 1:
        tiers.append(("between", "intervals", _intervals(marks, end)))
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', ""]
    lines += ["xmin = 0.000000", f"xmax = {end:.6f}", "tiers? <exists>"]
    lines += [f"size = {len(tiers)}", "item []:"]
    for at, (name, kind, entries) in enumerate(tiers, 1):
        tier = "TextTier" if kind == "points" else "IntervalTier"
        lines += [f"    item [{at}]:", f'        class = "{tier}"', f'        name = "{name}"']
        lines += ["        xmin = 0.000000", f"        xmax = {end:.6f}"]
        lines.append(f"        {kind}: size = {len(entries)}")
        for number, entry in enumerate(entries, 1):
            lines += [f"        {kind} [{number}]:", *(f"            {line}" for line in entry)]
    return "\n".join(lines) + "\n"


def _intervals(spans: Sequence[Span], end: float) -> list[list[str]]:
    """The lines of each, and of empty ones between them: Praat wants 0 to `end` filled."""
    at = 0.0
    found: list[Span] = []
    for begin, stop, text in [*spans, (end, end, "")]:
        begin, stop = min(end, max(at, begin)), max(at, min(end, stop))
        found += [(at, begin, ""), (begin, stop, text.replace('"', '""'))]
        at = stop
    return [
        [f"xmin = {begin:.6f}", f"xmax = {stop:.6f}", f'text = "{text}"']
        for begin, stop, text in found
        if begin < stop
    ]
