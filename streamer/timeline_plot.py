"""A picture of a timeline: pitch, level and rate over time, pauses shaded, sentences below."""

from __future__ import annotations

import contextlib
import functools
import logging
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ft2font import FT2Font
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator, NullLocator

from streamer.core.measures.speech_measures import join_measures
from streamer.core.text.chinese import told
from streamer.core.timeline import TimedTurn, Timeline, told_of

WIDTH_IN = 11.0
LEFT, RIGHT = 0.07, 0.95  # where the panels begin and end, as shares of the width
DPI = 120
PANELS_IN = (2.3, 1.3, 1.3)  # pitch, level, rate
LINE_IN = 0.24  # of the sentences
MAX_POINTS = 6_000  # of pitch: more cannot be seen
MAX_LEVELS = 2_000  # more hide the course of the level
MAX_RATES = 300
MAX_BORDERS = 20  # lines between turns: more hide the curves
LINE_S = 0.05  # pitch in longer steps is dots: a line would fill the panel
MAX_CHANNELS = 8
MAX_TURNS = 40  # with a sentence below
LINE_WIDTH = 116  # columns of a line of text; a Chinese character takes two
LOWEST_DB = -70.0
OCTAVE = 2.0
INK, FAINT, PITCH, LEVEL, RATE = "#222831", "#8a93a0", "#2563a8", "#3f8f86", "#c2632f"
PAUSE = "#eceef1"
STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": False,
}
LABELS = ("pitch, Hz", "level, dBFS", "syllables/s")
MORE = "... and {} more: .json and .vtt have them all"
CHANNEL = "{}, channel {}"
OTHER_TEXTS = ("no speech", "{:.0f} Hz", "{:.0f} % pauses", MORE, CHANNEL)
USUAL = "DejaVu Sans"  # of matplotlib, without Chinese
# Common fonts of Linux, macOS and Windows, the best first.
FAMILIES = (
    "Noto Sans CJK SC",
    "Source Han Sans SC",
    "Noto Sans SC",
    "Noto Sans CJK JP",  # a collection of fonts is known by its first one
    "PingFang SC",
    "Hiragino Sans GB",
    "Heiti TC",
    "Microsoft YaHei",
    "SimHei",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Arial Unicode MS",
    "Droid Sans Fallback",
    "SimSun",
)
NO_FONT = (
    "no font here has the sentences' characters, so they are left out of the picture; install one, "
    "such as Noto Sans CJK for Chinese, or take .vtt"
)


def draw(channels: Sequence[Timeline], path: Path, between: str = "") -> str | None:
    """Write a PNG: the channels, one below the other, and `between` below them. Returns a line if
    sentences or channels had to be left out."""
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # it warns of weights
    name = Path(channels[0].file).name
    shown = channels[:MAX_CHANNELS]
    texts = [turn.text for each in shown for turn in each.turns]
    language, labels_font = _language(shown)
    families = [font_for("".join(texts)), font_for(name), labels_font]
    has_font, can_name, _ = (family is not None for family in families)
    style: Any = {**STYLE, "font.family": list(dict.fromkeys([USUAL, *filter(None, families)]))}
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a matplotlibrc in the working directory changes nothing
        matplotlib.rcParams.update(style)
        lines = [_lines(each.turns, has_font, language) for each in shown]
        lines[-1] += [("", between)] if between else []
        name = name if can_name else name.encode("ascii", "replace").decode()
        _figure(shown, lines, name, language).savefig(
            path, format="png", dpi=DPI, facecolor="white"
        )
    if len(channels) > len(shown):
        return f"shows channels 0 to {len(shown) - 1} of {len(channels)}; take .json for all"
    return None if has_font else NO_FONT


def _language(channels: Sequence[Timeline]) -> tuple[str, str | None]:
    """That of the sentences, for all labels, and their font; English where none has them all."""
    spoken = next((turn.language for each in channels for turn in each.turns), "en")
    font = font_for("".join(told(spoken, text) for text in (*LABELS, *OTHER_TEXTS)))
    return (spoken, font) if font else ("en", None)


def _figure(
    channels: Sequence[Timeline],
    lines: Sequence[Sequence[tuple[str, str]]],
    name: str,
    language: str,
) -> Figure:
    heights_in = [1.5 + sum(PANELS_IN) + LINE_IN * len(each) for each in lines]
    figure = Figure((WIDTH_IN, sum(heights_in)))
    kept: dict[str, Any] = {"height_ratios": heights_in, "hspace": 0, "squeeze": False}
    parts = figure.subfigures(len(channels), 1, **kept)[:, 0]
    for part, each, below, height_in in zip(parts, channels, lines, heights_in, strict=True):
        channel = told(language, CHANNEL, name, each.channel)
        title = name if len(channels) == 1 else channel
        _channel(part, each, below, title, height_in, language)
    return figure


def _channel(
    figure: SubFigure,
    timeline: Timeline,
    lines: Sequence[tuple[str, str]],
    name: str,
    height_in: float,
    language: str,
) -> None:
    text_in = LINE_IN * len(lines) + 0.2
    edges = {"top": 1 - 0.5 / height_in, "bottom": (text_in + 0.5) / height_in}
    edges |= {"left": LEFT, "right": RIGHT, "hspace": 0.14}
    axes = figure.subplots(3, sharex=True, height_ratios=PANELS_IN, gridspec_kw=edges)
    total = join_measures([turn.measures for turn in timeline.turns])
    _panels(axes, timeline, None if total is None else total.pitch_median_hz, language)
    top = 1 - 0.3 / height_in
    figure.text(LEFT, top, name.replace("$", r"\$"), size=13, va="center")
    if total is not None:
        whole = TimedTurn(0, timeline.duration_s, "", {}, total)
        figure.text(
            RIGHT, top, told_of(whole, language), size=9, color=FAINT, ha="right", va="center"
        )
    for i, (when, line) in enumerate(lines):
        y = (text_in - 0.1 - LINE_IN * i) / height_in
        figure.text(LEFT, y, when, color=FAINT, va="top", size=9)
        figure.text(LEFT + 0.05, y, line.replace("$", r"\$"), va="top", size=9.5)


def _panels(
    axes: Sequence[Axes], timeline: Timeline, median_hz: float | None, language: str
) -> None:
    curves = timeline.curves.thinned(MAX_POINTS)
    at_s = (np.arange(len(curves)) + 0.5) * curves.step_s
    for ax, label in zip(axes, LABELS, strict=True):
        ax.set_ylabel(told(language, label))
    _pitch(axes[0], at_s, np.where(curves.f0_hz > 0, curves.f0_hz, np.nan), median_hz, language)
    coarse = timeline.curves.thinned(MAX_LEVELS)
    _level(axes[1], (np.arange(len(coarse)) + 0.5) * coarse.step_s, coarse.level_dbfs)
    rates = [(at, np.nan if rate is None else rate) for at, rate in timeline.curves.rates()]
    _rate(axes[2], _averaged(np.array(rates)))
    shown_s = timeline.duration_s / 1000  # a shorter pause is no pixel wide
    for ax in axes:
        for begin_s, end_s in timeline.curves.pauses_s:
            if end_s - begin_s > shown_s:
                ax.axvspan(begin_s, end_s, color=PAUSE, lw=0, zorder=0)
        for turn in timeline.turns[1:] if len(timeline.turns) <= MAX_BORDERS else ():
            ax.axvline(turn.start_s, color=FAINT, lw=0.6, ls=(0, (2, 3)), zorder=1)
        ax.tick_params(length=2)
        ax.yaxis.set_label_coords(-0.05, 0.5)
    axes[-1].set_xlim(0, max(timeline.duration_s, curves.step_s))
    axes[-1].xaxis.set_major_formatter(FuncFormatter(lambda s, _: _clock(s)))
    is_long = timeline.duration_s > 60
    ticks = MultipleLocator(_tick_s(timeline.duration_s)) if is_long else MaxNLocator(integer=True)
    axes[-1].xaxis.set_major_locator(ticks)


def _pitch(
    ax: Axes, at_s: np.ndarray, f0_hz: np.ndarray, median_hz: float | None, language: str
) -> None:
    """median_hz: that of the measures; for a long recording the mean of its parts."""
    ax.set_yscale("log")
    voiced = f0_hz[np.isfinite(f0_hz)]
    low, high = (voiced.min(), voiced.max()) if len(voiced) else (100.0, 200.0)
    spread = max(1.1, OCTAVE / (high / low)) ** 0.5  # a flat voice looks flat
    low, high = low / spread, high * spread
    ticks = [hz for hz in (60, 80, 100, 125, 150, 200, 250, 300, 400, 500) if low <= hz <= high]
    ax.set_ylim(low, high)
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_yticks(ticks, [str(hz) for hz in ticks])
    ax.grid(axis="y", color=PAUSE, lw=0.7, zorder=0)
    is_fine = len(at_s) < 2 or at_s[1] - at_s[0] < LINE_S
    line: dict[str, Any] = {"lw": 1.9, "solid_capstyle": "round"}
    dots: dict[str, Any] = {"ls": "", "marker": ".", "ms": 3.0, "mew": 0, "alpha": 0.5}
    ax.plot(at_s, f0_hz, color=PITCH, zorder=3, **(line if is_fine else dots))
    if median_hz is not None:
        ax.axhline(median_hz, color=PITCH, lw=0.8, ls=(0, (4, 3)), zorder=2)
        place = ("axes fraction", "data")
        shown = told(language, "{:.0f} Hz", median_hz)
        ax.annotate(shown, (1.005, median_hz), xycoords=place, va="center", color=PITCH, size=8)


def _level(ax: Axes, at_s: np.ndarray, level_db: np.ndarray) -> None:
    shown = np.maximum(level_db, LOWEST_DB)
    ax.fill_between(at_s, LOWEST_DB, shown, color=LEVEL, alpha=0.35, lw=0, zorder=2)
    ax.plot(at_s, shown, color=LEVEL, lw=0.8, zorder=3)
    ax.set_ylim(LOWEST_DB, max(-10.0, float(shown.max(initial=LOWEST_DB)) + 5))
    ax.yaxis.set_major_locator(MultipleLocator(20))


def _rate(ax: Axes, rates: np.ndarray) -> None:
    ax.plot(rates[:, 0], rates[:, 1], color=RATE, lw=1.6, zorder=3)
    known = rates[np.isfinite(rates[:, 1]), 1]
    ax.set_ylim(0, max(8.0, float(known.max(initial=0)) * 1.1))
    ax.yaxis.set_major_locator(MultipleLocator(2))
    ax.grid(axis="y", color=PAUSE, lw=0.7, zorder=0)


def _averaged(rates: np.ndarray) -> np.ndarray:
    """(time, rate) [n, 2] as at most MAX_RATES means of known rates."""
    size = -(-len(rates) // MAX_RATES)
    parts = [rates[at : at + size] for at in range(0, len(rates), size)]
    known = [part[np.isfinite(part[:, 1]), 1] for part in parts]
    means = [each.mean() if len(each) else np.nan for each in known]
    return np.array([(part[:, 0].mean(), mean) for part, mean in zip(parts, means, strict=True)])


def _lines(turns: Sequence[TimedTurn], has_font: bool, language: str) -> list[tuple[str, str]]:
    """(time, text) of the lines below: sentences, or measures without a font for sentences."""
    found: list[tuple[str, str]] = []
    for turn in turns[:MAX_TURNS]:
        line = turn.text if has_font else told_of(turn)
        if not has_font and len(turns) == 1:
            break  # its measures are above
        wrapped = _wrapped(line if turn.text else told(language, "no speech"))
        found += zip((_clock(turn.start_s), *[""] * len(wrapped)), wrapped, strict=False)
    if len(turns) > MAX_TURNS:
        more = told(language, MORE, len(turns) - MAX_TURNS)
        found.append(("", more))
    return found


def _wrapped(text: str) -> list[str]:
    """Lines of at most LINE_WIDTH columns; Chinese may be cut between any two characters."""
    lines = [""]
    width = 0
    for c in " ".join(text.split()):
        width += 2 if unicodedata.east_asian_width(c) in "WF" else 1
        if width > LINE_WIDTH and c not in "，。；：、！？":
            lines.append("")
            width = 2
        lines[-1] += c
    return lines


def _clock(seconds: float) -> str:
    """As people write it: 7.5, 1:05, 1:00:00."""
    seconds = round(seconds, 3)  # a tick may be 59.999999
    whole = int(seconds)
    if seconds != whole:
        return f"{seconds:g}"
    hours, minutes = whole // 3600, whole // 60 % 60
    told = f"{minutes}:{whole % 60:02d}"
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else told


def _tick_s(duration_s: float) -> float:
    steps: Any = (10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)
    return next((float(step) for step in steps if duration_s / step <= 12), duration_s / 12)


def font_for(text: str) -> str | None:
    """A family that has all characters of `text`: USUAL, one of FAMILIES, or another one with the
    word CJK in its name; otherwise None."""
    wanted = {ord(c) for c in text if not c.isspace()}
    found = _known_for(wanted)
    return found if found or not _look_again() else _known_for(wanted)


def _known_for(wanted: set[int]) -> str | None:
    known = {font.name for font in font_manager.fontManager.ttflist}
    others = sorted(name for name in known if "CJK" in name or "Han S" in name)
    for name in (USUAL, *FAMILIES, *others):
        if name in known and wanted <= _characters(font_manager.findfont(name)):
            return name
    return None


def _look_again() -> bool:
    """Add fonts that are newer than the list that matplotlib keeps; whether there are any."""
    manager = font_manager.fontManager
    known = {font.fname for font in manager.ttflist}
    fresh = [file for file in font_manager.findSystemFonts() if file not in known]
    for file in fresh:
        with contextlib.suppress(OSError, RuntimeError):  # one that FreeType cannot read
            manager.addfont(file)
    return bool(fresh)


@functools.lru_cache(maxsize=4)
def _characters(file: str) -> frozenset[int]:
    try:
        return frozenset(FT2Font(file).get_charmap())
    except (OSError, RuntimeError):  # a font that was removed, or that FreeType cannot read
        return frozenset()
