"""Timelines as a Praat TextGrid: speech and pauses, syllables, sentences. ELAN reads it too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamer.core.conversation import marks_between
from streamer.core.timeline import Timeline

Interval = tuple[float, float, str]
SPEECH, PAUSE = "speech", "pause"


def textgrid(channels: Sequence[Timeline]) -> str:
    """The text of a TextGrid (long form, to be written as UTF-8) of three tiers for each channel:

    `speech` (intervals, each "speech", "pause" or ""), `syllables` (points, one near the middle of
    each syllable that is counted) and `sentence` (intervals, one for each turn). With several
    channels their names end with the channel's number, and a tier `between` has "overlap" and
    "dead air".
    """
    end = max(each.duration_s for each in channels)
    is_call = len(channels) > 1
    names = [f" {each.channel}" if is_call else "" for each in channels]
    tiers = [
        tier for each, name in zip(channels, names, strict=True) for tier in _tiers(each, name, end)
    ]
    if is_call:
        tiers.append(_intervals("between", _filled(marks_between(channels), end), end))
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', ""]
    lines += [*_bounds(end), "tiers? <exists>", f"size = {len(tiers)}", "item []:"]
    for number, tier in enumerate(tiers, 1):
        lines += [f"    item [{number}]:", *(f"        {line}" for line in tier)]
    return "\n".join(lines) + "\n"


def _tiers(timeline: Timeline, name: str, end: float) -> list[Iterator[str]]:
    turns = [(turn.start_s, turn.end_s, turn.text) for turn in timeline.turns]
    return [
        _intervals(f"speech{name}", _speech(timeline, end), end),
        _points(f"syllables{name}", timeline.curves.nuclei_s, end),
        _intervals(f"sentence{name}", _filled(turns, end), end),
    ]


def _speech(timeline: Timeline, duration_s: float) -> list[Interval]:
    """From the first speech to the last, with its pauses; "" before and after."""
    curves = timeline.curves
    if (span := curves.span_s) is None:
        return _filled([], duration_s)
    at, found = span[0], []
    for begin, end in curves.pauses_s:
        found += [(at, begin, SPEECH), (begin, end, PAUSE)]
        at = end
    return _filled([*found, (at, span[1], SPEECH)], duration_s)


def _filled(intervals: Sequence[Interval], end: float) -> list[Interval]:
    """The intervals with empty ones between them, so that they fill 0 to `end`, as Praat wants."""
    at, found = 0.0, []
    for begin, stop, text in intervals:
        begin, stop = max(at, begin), min(end, stop)
        if stop <= begin:
            continue
        if begin > at:
            found.append((at, begin, ""))
        found.append((begin, stop, text))
        at = stop
    return [*found, (at, end, "")] if at < end else found


def _bounds(end: float, begin: float = 0.0) -> list[str]:
    return [f"xmin = {begin:.6f}", f"xmax = {end:.6f}"]


def _intervals(name: str, intervals: Sequence[Interval], end: float) -> Iterator[str]:
    yield from ('class = "IntervalTier"', f'name = "{name}"', *_bounds(end))
    yield f"intervals: size = {len(intervals)}"
    for number, (begin, stop, text) in enumerate(intervals, 1):
        yield f"intervals [{number}]:"
        yield from (f"    {line}" for line in (*_bounds(stop, begin), f'text = "{_quoted(text)}"'))


def _points(name: str, times: Sequence[float], end: float) -> Iterator[str]:
    yield from ('class = "TextTier"', f'name = "{name}"', *_bounds(end))
    yield f"points: size = {len(times)}"
    for number, time in enumerate(times, 1):
        yield from (f"points [{number}]:", f"    number = {time:.6f}", '    mark = ""')


def _quoted(text: str) -> str:
    return text.replace('"', '""')
