"""A picture of a timeline: pitch, level and rate over time, pauses shaded, sentences below."""

from __future__ import annotations

import logging
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator, NullLocator

from streamer.core.measures.speech_measures import join_measures
from streamer.core.text.chinese import told
from streamer.core.timeline import Timeline
from streamer.progress import clock
from streamer.timeline import told_of

PANELS_IN = {"pitch, Hz": 2.3, "level, dBFS": 1.3, "syllables/s": 1.3}
LINE_IN = 0.2  # of the sentences
MAX_CHANNELS = 8
MAX_TURNS = 40  # with a sentence below
LINE_WIDTH = 130  # letters of a line of text; a Chinese character is as wide as two
LOWEST_DB = -70.0
TICKS_S = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)  # the first with at most 12 ticks
FAINT, PITCH, LEVEL, RATE, PAUSE = "#8a93a0", "#2563a8", "#3f8f86", "#c2632f", "#eceef1"
STYLE = Path(__file__).with_name("timeline.mplstyle")
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
    lines[-1] += [between] if between else []
    heights_in = [*PANELS_IN.values()] * len(shown)
    below_in = sum(0.8 + LINE_IN * len(each) for each in lines)
    # a matplotlibrc in the working directory changes nothing
    with matplotlib.rc_context(fname=STYLE), warnings.catch_warnings():
        matplotlib.rcParams["font.family"] = ["DejaVu Sans", *chinese]  # the first has no Chinese
        warnings.filterwarnings("ignore", "Glyph")  # of a file's name
        figure = Figure((11, sum(heights_in) + below_in), layout="constrained")
        axes = figure.subplots(len(heights_in), height_ratios=heights_in)
        for i, each in enumerate(shown):
            _channel(axes[3 * i : 3 * i + 3], each, lines[i], language)
        figure.align_ylabels(axes)
        figure.savefig(path, format="png", dpi=120, facecolor="white")
    if len(channels) > len(shown):
        return f"shows channels 0 to {len(shown) - 1} of {len(channels)}; take .json for all"
    return None if has_font else NO_FONT


def chinese_fonts() -> list[str]:
    """The names of those that are here."""
    known = font_manager.fontManager.get_font_names()
    return [name for name in CHINESE if name in known]


def _channel(axes: Sequence[Axes], timeline: Timeline, lines: Sequence[str], language: str) -> None:
    """A title, three panels, and the lines below."""
    title = Path(timeline.file).name.encode(errors="replace").decode()
    if timeline.channel is not None:
        title = told(language, "{}, channel {}", title, timeline.channel)
    axes[0].set_title(title, loc="left")
    total = join_measures([turn.measures for turn in timeline.turns])
    if total is not None:
        axes[0].set_title(told_of(total, language), loc="right", color=FAINT, size=9)
    length_s, curves = timeline.duration_s, timeline.curves
    pauses = [(a, b) for a, b in curves.pauses_s if b - a > length_s / 1000]  # else under a pixel
    tick_s = next((s for s in TICKS_S if length_s <= 12 * s), length_s / 12)
    for ax, label in zip(axes, PANELS_IN, strict=True):
        ax.set_ylabel(told(language, label))
        ax.set_xlim(0, max(length_s, curves.step_s))
        ax.xaxis.set_major_locator(MultipleLocator(tick_s))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda s, _: clock(s + 0.001)))
        ax.tick_params(labelbottom=ax is axes[-1])
        for pause in pauses:
            ax.axvspan(*pause, color=PAUSE, lw=0, zorder=0)
    axes[-1].set_xlabel("\n".join(lines), loc="left")
    shown = curves.thinned(6_000)  # more points cannot be seen
    at_s, voiced = (np.arange(len(shown)) + 0.5) * shown.step_s, shown.f0_hz > 0
    _pitch(axes[0], at_s[voiced], shown.f0_hz[voiced])
    shown_db = np.maximum(shown.level_dbfs, LOWEST_DB)
    axes[1].fill_between(at_s, LOWEST_DB, shown_db, color=LEVEL, alpha=0.5, lw=0, zorder=2)
    axes[1].set_ylim(LOWEST_DB, max(-10.0, float(shown_db.max(initial=LOWEST_DB)) + 5))
    rate_at_s, rates = zip(*curves.rates(), strict=True)
    axes[2].plot(rate_at_s, np.array(rates, float), color=RATE, lw=1.6, zorder=3)
    axes[2].set_ylim(0, max([8.0, *(1.1 * rate for rate in rates if rate is not None)]))
    axes[2].grid(axis="y", color=PAUSE, lw=0.7, zorder=0)


def _pitch(ax: Axes, at_s: np.ndarray, f0_hz: np.ndarray) -> None:
    """f0_hz: of voiced points alone."""
    ax.set_yscale("log")
    low, high = (f0_hz.min(), f0_hz.max()) if len(f0_hz) else (100.0, 200.0)
    spread = max(1.1, 2 * low / high) ** 0.5  # at least an octave: a flat voice looks flat
    ticks = (60, 80, 100, 125, 150, 200, 250, 300, 400, 500)
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_yticks(ticks, [str(hz) for hz in ticks])
    ax.set_ylim(low / spread, high * spread)
    ax.grid(axis="y", color=PAUSE, lw=0.7, zorder=0)
    ax.plot(at_s, f0_hz, ".", color=PITCH, ms=4.0, mew=0, zorder=3)


def _lines(turns: Sequence[Any], language: str) -> list[str]:
    """Those below: each turn's time and sentence."""
    found = []
    for turn in turns[:MAX_TURNS]:
        text = f"{clock(turn.start_s)}  {turn.text or told(language, 'no speech')}"
        found += textwrap.wrap(text, LINE_WIDTH if text.isascii() else LINE_WIDTH // 2)
    if len(turns) > MAX_TURNS:
        found.append(told(language, "... and {} more: .json has them all", len(turns) - MAX_TURNS))
    return found
