"""A picture of a timeline: pitch, level and rate over time, pauses shaded, sentences below."""

from __future__ import annotations

import logging
import textwrap
import warnings
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import FuncFormatter, MultipleLocator, NullLocator

from streamer.core.measures.speech_measures import join_measures
from streamer.core.text.chinese import told
from streamer.core.timeline import TimedTurn, Timeline, told_of
from streamer.progress import clock

WIDTH_IN = 11.0
LEFT, RIGHT = 0.07, 0.95  # where the panels begin and end, as shares of the width
DPI = 120
PANELS_IN = (2.3, 1.3, 1.3)  # pitch, level, rate
LINE_IN = 0.24  # of the sentences
MAX_POINTS = 6_000  # more cannot be seen
MAX_CHANNELS = 8
MAX_TURNS = 40  # with a sentence below
LINE_WIDTH = 116  # letters of a line of text; a Chinese character is as wide as two
LOWEST_DB = -70.0
TICKS_S = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
MAX_TICKS = 12
INK, FAINT, PITCH, LEVEL, RATE = "#222831", "#8a93a0", "#2563a8", "#3f8f86", "#c2632f"
PAUSE = "#eceef1"
STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.edgecolor": FAINT,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": False,
}
LABELS = ("pitch, Hz", "level, dBFS", "syllables/s")
MORE = "... and {} more: .json and .vtt have them all"
USUAL = "DejaVu Sans"  # of matplotlib, without Chinese
CHINESE = (  # common fonts of Linux, macOS and Windows
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC"),
    *("WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback"),
    *("PingFang SC", "Hiragino Sans GB", "Microsoft YaHei", "SimHei"),
)
NO_FONT = (
    "no font here has the sentences' characters, so they are left out of the picture; install one, "
    "such as Noto Sans CJK for Chinese, or take .vtt"
)


def draw(channels: Sequence[Timeline], path: Path, between: str = "") -> str | None:
    """Write a PNG: the channels, one below the other, and `between` below them. Returns a line if
    sentences or channels had to be left out."""
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # it warns of weights
    shown = channels[:MAX_CHANNELS]
    chinese = chinese_fonts()
    turns = [turn for each in shown for turn in each.turns]
    has_font = bool(chinese) or all(turn.text.isascii() for turn in turns)
    language = turns[0].language if turns and chinese else "en"
    lines = [_lines(each.turns if has_font else (), language) for each in shown]
    lines[-1] += [("", between)] if between else []
    style: Any = {**STYLE, "font.family": [USUAL, *chinese]}
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()  # a matplotlibrc in the working directory changes nothing
        matplotlib.rcParams.update(style)
        warnings.filterwarnings("ignore", "Glyph")  # of a file's name
        _figure(shown, lines, language).savefig(path, format="png", dpi=DPI, facecolor="white")
    if len(channels) > len(shown):
        return f"shows channels 0 to {len(shown) - 1} of {len(channels)}; take .json for all"
    return None if has_font else NO_FONT


def chinese_fonts() -> list[str]:
    """The names of those that are here."""
    known = font_manager.fontManager.get_font_names()
    return [name for name in CHINESE if name in known]


def _figure(
    channels: Sequence[Timeline], lines: Sequence[Sequence[tuple[str, str]]], language: str
) -> Figure:
    heights_in = [1.5 + sum(PANELS_IN) + LINE_IN * len(each) for each in lines]
    figure = Figure((WIDTH_IN, sum(heights_in)))
    kept: dict[str, Any] = {"height_ratios": heights_in, "hspace": 0, "squeeze": False}
    parts = figure.subfigures(len(channels), 1, **kept)[:, 0]
    for part, each, below, height_in in zip(parts, channels, lines, heights_in, strict=True):
        _channel(part, each, below, height_in, language)
    return figure


def _channel(
    figure: SubFigure,
    timeline: Timeline,
    lines: Sequence[tuple[str, str]],
    height_in: float,
    language: str,
) -> None:
    text_in = LINE_IN * len(lines) + 0.2
    top, bottom = 1 - 0.5 / height_in, (text_in + 0.5) / height_in
    edges = {"top": top, "bottom": bottom, "left": LEFT, "right": RIGHT, "hspace": 0.14}
    axes = figure.subplots(3, sharex=True, height_ratios=PANELS_IN, gridspec_kw=edges)
    total = join_measures([turn.measures for turn in timeline.turns])
    _panels(axes, timeline, language)
    title, head = Path(timeline.file).name.encode(errors="replace").decode(), 1 - 0.3 / height_in
    if timeline.channel is not None:
        title = told(language, "{}, channel {}", title, timeline.channel)
    figure.text(LEFT, head, title, size=13, va="center")
    if total is not None:
        numbers = told_of(TimedTurn(0, timeline.duration_s, "", {}, total), language)
        figure.text(RIGHT, head, numbers, color=FAINT, ha="right", va="center")
    for i, (when, line) in enumerate(lines):
        y = (text_in - 0.1 - LINE_IN * i) / height_in
        figure.text(LEFT, y, when, color=FAINT, va="top")
        figure.text(LEFT + 0.05, y, line, va="top")


def _panels(axes: Sequence[Axes], timeline: Timeline, language: str) -> None:
    curves = timeline.curves.thinned(MAX_POINTS)
    at_s = (np.arange(len(curves)) + 0.5) * curves.step_s
    _pitch(axes[0], at_s, np.where(curves.f0_hz > 0, curves.f0_hz, np.nan))
    _level(axes[1], at_s, curves.level_dbfs)
    _rate(axes[2], *zip(*timeline.curves.rates(), strict=True))
    shown_s = timeline.duration_s / 1000  # a shorter pause is no pixel wide
    for ax, label in zip(axes, LABELS, strict=True):
        ax.set_ylabel(told(language, label))
        ax.yaxis.set_label_coords(-0.05, 0.5)
        for begin_s, end_s in timeline.curves.pauses_s:
            if end_s - begin_s > shown_s:
                ax.axvspan(begin_s, end_s, color=PAUSE, lw=0, zorder=0)
    axes[-1].set_xlim(0, max(timeline.duration_s, curves.step_s))
    tick_s = next((s for s in TICKS_S if timeline.duration_s / s <= MAX_TICKS), None)
    axes[-1].xaxis.set_major_locator(MultipleLocator(tick_s or timeline.duration_s / MAX_TICKS))
    axes[-1].xaxis.set_major_formatter(FuncFormatter(lambda s, _: clock(s + 0.001)))


def _pitch(ax: Axes, at_s: np.ndarray, f0_hz: np.ndarray) -> None:
    ax.set_yscale("log")
    voiced = f0_hz[np.isfinite(f0_hz)]
    low, high = (voiced.min(), voiced.max()) if len(voiced) else (100.0, 200.0)
    spread = max(1.1, 2 * low / high) ** 0.5  # at least an octave: a flat voice looks flat
    ticks = (60, 80, 100, 125, 150, 200, 250, 300, 400, 500)
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_yticks(ticks, [str(hz) for hz in ticks])
    ax.set_ylim(low / spread, high * spread)
    ax.grid(axis="y", color=PAUSE, lw=0.7, zorder=0)
    ax.plot(at_s, f0_hz, ".", color=PITCH, ms=4.0, mew=0, zorder=3)


def _level(ax: Axes, at_s: np.ndarray, level_db: np.ndarray) -> None:
    shown = np.maximum(level_db, LOWEST_DB)
    ax.fill_between(at_s, LOWEST_DB, shown, color=LEVEL, alpha=0.5, lw=0, zorder=2)
    ax.set_ylim(LOWEST_DB, max(-10.0, float(shown.max(initial=LOWEST_DB)) + 5))


def _rate(ax: Axes, at_s: Sequence[float], rates: Sequence[float | None]) -> None:
    ax.plot(at_s, np.array(rates, float), color=RATE, lw=1.6, zorder=3)
    ax.set_ylim(0, max([8.0, *(1.1 * rate for rate in rates if rate is not None)]))
    ax.grid(axis="y", color=PAUSE, lw=0.7, zorder=0)


def _lines(turns: Sequence[TimedTurn], language: str) -> list[tuple[str, str]]:
    """(time, text) of the lines below."""
    found: list[tuple[str, str]] = []
    for turn in turns[:MAX_TURNS]:
        width = LINE_WIDTH if turn.text.isascii() else LINE_WIDTH // 2
        wrapped = textwrap.wrap(turn.text or told(language, "no speech"), width)
        found += zip_longest([clock(turn.start_s)], wrapped, fillvalue="")
    if len(turns) > MAX_TURNS:
        found.append(("", told(language, MORE, len(turns) - MAX_TURNS)))
    return found
