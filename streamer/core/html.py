"""A description as HTML for notebooks: its sentence, seven gauges with numbers, and the curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Protocol

import numpy as np

from streamer.core.readings import Described, Reading, readings_of
from streamer.core.timeline import Timeline

WIDTH, HEIGHT = 640, 90
MOST_POINTS = 640
CELL = '<td style="padding-right:.8em;text-align:left">'
PITCH, LEVEL = "#0a7a8f", "#b8b8b8"


class Shown(Described, Protocol):
    """The part of a Description that is shown."""

    @property
    def text(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def warning(self) -> str | None: ...
    @property
    def language(self) -> str: ...
    @property
    def audio_s(self) -> float: ...
    @property
    def timeline(self) -> Timeline | None: ...


def card(found: Shown) -> str:
    """A fragment of HTML without scripts or outside resources."""
    rows = "".join(map(_row, readings_of(found)))
    warning = f'<div style="color:#b00020">{escape(found.warning)}</div>' if found.warning else ""
    return (
        f'<div style="max-width:{WIDTH}px;font-family:sans-serif">'
        f'<div style="font-size:1.2em">{escape(found.text) or "no speech"}</div>'
        f'<div style="opacity:.7">{escape(_in_other_words(found))}</div>{warning}'
        f'<table style="margin:.5em 0">{rows}</table>{_curves(found)}'
        f'<div style="opacity:.7">{escape(found.file)}, {found.audio_s:.1f} s</div></div>'
    )


def _in_other_words(found: Shown) -> str:
    """The levels in the language that the sentence is not in."""
    other = "zh" if found.language == "en" else "en"
    said = [level[other] for level in found.levels.values() if level and level[other]]
    return "，".join(said) if other == "zh" else ", ".join(said)


def _row(reading: Reading) -> str:
    cells = (reading.attribute, _gauge(reading), escape(reading.name or "-"))
    more = (escape(reading.number), reading.certainty)
    return "<tr>" + "".join(f"{CELL}{cell}</td>" for cell in (*cells, *more)) + "</tr>"


def _gauge(reading: Reading) -> str:
    """A box for each level, lowest first; the one that is said is filled."""
    boxes = [
        f'<span style="display:inline-block;width:14px;height:10px;margin-right:2px;'
        f'background:{PITCH if i == reading.level else "#ddd"}"></span>'
        for i in range(reading.num_levels)
    ]
    return "".join(boxes)


def _curves(found: Shown) -> str:
    """Level as an area, pitch as a line; of a recording with curves."""
    timeline = found.timeline
    if timeline is None or len(timeline.curves.level_dbfs) < 2:
        return ""
    curves = timeline.curves
    levels = np.clip(_thinned(curves.level_dbfs), -70, 0)
    area = " ".join(f"{x:.0f},{y:.0f}" for x, y in _places(levels, -70, 0))
    pitch = _thinned(curves.f0_hz)
    voiced = pitch[pitch > 0]
    low, high = (60.0, 400.0) if len(voiced) == 0 else (voiced.min() * 0.9, voiced.max() * 1.1)
    lines = "".join(
        f'<polyline points="{points}" fill="none" stroke="{PITCH}" stroke-width="2"/>'
        for points in _strokes(pitch, float(low), float(high))
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" '
        f'aria-label="level and pitch over time">'
        f'<polygon points="0,{HEIGHT} {area} {WIDTH},{HEIGHT}" fill="{LEVEL}" opacity=".5"/>'
        f"{lines}</svg>"
    )


def _thinned(values: np.ndarray) -> np.ndarray:
    """At most MOST_POINTS values, each the largest of its stretch."""
    step = -(-len(values) // MOST_POINTS)
    padded = np.pad(values, (0, -len(values) % step), mode="edge")
    found: np.ndarray = padded.reshape(-1, step).max(1)
    return found


def _places(values: np.ndarray, low: float, high: float) -> Iterator[tuple[float, float]]:
    for i, value in enumerate(values):
        yield WIDTH * i / (len(values) - 1), HEIGHT * (1 - (value - low) / (high - low))


def _strokes(pitch: np.ndarray, low: float, high: float) -> Sequence[str]:
    """The points of each voiced stretch."""
    found: list[list[str]] = [[]]
    for hz, (x, y) in zip(pitch, _places(pitch, low, high), strict=True):
        if hz > 0:
            found[-1].append(f"{x:.0f},{y:.0f}")
        elif found[-1]:
            found.append([])
    return [" ".join(points) for points in found if len(points) > 1]
