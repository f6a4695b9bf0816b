"""A Timeline as a Praat TextGrid: speech and pauses, syllables, sentences. ELAN reads it too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamer.core.timeline import Timeline

Interval = tuple[float, float, str]
SPEECH, PAUSE = "speech", "pause"


def textgrid(timeline: Timeline) -> str:
    """The text of a TextGrid (long form, to be written as UTF-8) of three tiers:

    `speech` (intervals, each "speech", "pause" or ""), `syllables` (points, one near the middle of
    each syllable that is counted) and `sentence` (intervals, one for each turn).
    """
    end = timeline.duration_s
    turns = [(turn.start_s, turn.end_s, turn.text) for turn in timeline.turns]
    tiers = (
        _intervals("speech", _speech(timeline), end),
        _points("syllables", timeline.curves.nuclei_s, end),
        _intervals("sentence", _filled(turns, end), end),
    )
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', ""]
    lines += [*_bounds(end), "tiers? <exists>", f"size = {len(tiers)}", "item []:"]
    for number, tier in enumerate(tiers, 1):
        lines += [f"    item [{number}]:", *(f"        {line}" for line in tier)]
    return "\n".join(lines) + "\n"


def _speech(timeline: Timeline) -> list[Interval]:
    """From the first speech to the last, with its pauses; "" before and after."""
    curves = timeline.curves
    if (span := curves.span_s) is None:
        return _filled([], timeline.duration_s)
    at, found = span[0], []
    for begin, end in curves.pauses_s:
        found += [(at, begin, SPEECH), (begin, end, PAUSE)]
        at = end
    return _filled([*found, (at, span[1], SPEECH)], timeline.duration_s)


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
