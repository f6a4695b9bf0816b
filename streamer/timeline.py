"""Write the timeline of a Description, or of a call's, as .json, .vtt, .TextGrid or .png."""

from __future__ import annotations

import html
import json
import logging
import os
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamer.config import ConfigError
from streamer.core.description import Description
from streamer.core.measures.speech_measures import SpeechMeasures, join_measures
from streamer.core.text import comma, told
from streamer.core.timeline import Conversation, Span, Timeline, conversation
from streamer.extras import missing
from streamer.progress import clock


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
        measured = main_measures(turn.measures, turn.language)
        lines = " ".join(turn.text.split()), comma(turn.language).join(filter(None, measured))
        cue = html.escape("\n".join(filter(None, lines)), quote=False)
        cues.append(f"{number}\n{when}\n{voice}{cue}\n")
    return "\n".join(cues)


def _clock(seconds: float) -> str:
    """hh:mm:ss.ttt, as in WebVTT."""
    ms = round(1000 * seconds)
    return f"{ms // 3_600_000:02d}:{ms // 60_000 % 60:02d}:{ms // 1000 % 60:02d}.{ms % 1000:03d}"


def main_measures(m: SpeechMeasures, language: str) -> list[str]:
    """The most important measures in words, "" for an unknown one; the last one is of pauses."""
    pauses = None if m.pause_share is None else 100 * m.pause_share
    parts = (
        ("{:.1f} syllables/s", m.rate_syllables_per_s),
        ("{:.0f} Hz", m.pitch_median_hz),
        ("SD {:.1f} semitones", m.pitch_sd_semitones),
        ("{:.0f} dBFS", m.level_dbfs),
        ("{:.0f} % pauses", pauses),
    )
    return ["" if value is None else told(language, form, value) for form, value in parts]


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


# Sizes, ticks and colours of a picture.
PANELS_IN = {"pitch, Hz": 2.3, "level, dBFS": 1.3, "syllables/s": 1.3}
LINE_IN = 0.2  # of the sentences
MAX_CHANNELS = 8
MAX_TURNS = 40  # with a sentence below
LINE_WIDTH = 130  # letters of a line of text; a Chinese character is as wide as two
LOWEST_DB = -70.0
TICKS_S = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)  # the first with at most 12 ticks
TICKS_HZ = (60, 80, 100, 125, 150, 200, 250, 300, 400, 500)
FAINT, PITCH, LEVEL, RATE, PAUSE = "#8a93a0", "#2563a8", "#3f8f86", "#c2632f", "#eceef1"
STYLE = Path(__file__).with_name("timeline.mplstyle")
NO_FONT = (
    "no font here has the sentences' characters, so they are left out of the picture; install one, "
    "such as Noto Sans CJK for Chinese, or take English, or .vtt"
)


def draw(channels: Sequence[Timeline], path: Path, between: str = "") -> str | None:
    """Write a PNG of channels, `between` below. Returns a line if something had to be left out."""
    import matplotlib
    from matplotlib.figure import Figure

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
    from matplotlib import font_manager, rc_params_from_file

    known = font_manager.fontManager.get_font_names()
    _, *chinese = rc_params_from_file(STYLE)["font.family"]
    return [name for name in chinese if name in known]


def _channel(axes: Sequence[Any], timeline: Timeline, lines: Sequence[str], language: str) -> None:
    """A title, three panels (Axes of matplotlib), and the lines below."""
    title = Path(timeline.file).name.encode(errors="replace").decode()
    if timeline.channel is not None:
        title = told(language, "{}, channel {}", title, timeline.channel)
    axes[0].set_title(title, loc="left")
    if (total := join_measures([turn.measures for turn in timeline.turns])) is not None:
        measured = comma(language).join(filter(None, main_measures(total, language)))
        axes[0].set_title(measured, loc="right", color=FAINT, size=9)
    length_s, curves = timeline.duration_s, timeline.curves
    pauses = [(a, b) for a, b in curves.pauses_s if b - a > length_s / 1000]  # else under a pixel
    tick_s = next((s for s in TICKS_S if length_s <= 12 * s), length_s / 12)
    ticks_s = np.arange(0, length_s, tick_s)
    for ax, label in zip(axes, PANELS_IN, strict=True):
        ax.set_ylabel(told(language, label))
        ax.set_xlim(0, max(length_s, curves.step_s))
        ax.set_xticks(ticks_s, [clock(s + 0.001) for s in ticks_s])
        ax.tick_params(labelbottom=ax is axes[-1])
        for pause in pauses:
            ax.axvspan(*pause, color=PAUSE, lw=0, zorder=0)
    axes[-1].set_xlabel("\n".join(lines), loc="left")
    shown = curves.thinned(6_000)  # more points cannot be seen
    at_s, voiced = (np.arange(len(shown)) + 0.5) * shown.step_s, shown.f0_hz > 0
    f0_hz = shown.f0_hz[voiced]
    low, high = (f0_hz.min(), f0_hz.max()) if len(f0_hz) else (100.0, 200.0)
    spread = max(1.1, 2 * low / high) ** 0.5  # at least an octave: a flat voice looks flat
    axes[0].set_yscale("log")
    axes[0].minorticks_off()
    axes[0].set_yticks(TICKS_HZ, [str(hz) for hz in TICKS_HZ])
    axes[0].set_ylim(low / spread, high * spread)
    axes[0].plot(at_s[voiced], f0_hz, ".", color=PITCH, ms=4.0, mew=0, zorder=3)
    shown_db = np.maximum(shown.level_dbfs, LOWEST_DB)
    axes[1].fill_between(at_s, LOWEST_DB, shown_db, color=LEVEL, alpha=0.5, lw=0, zorder=2)
    axes[1].set_ylim(LOWEST_DB, max(-10.0, float(shown_db.max(initial=LOWEST_DB)) + 5))
    rate_at_s, rates = zip(*curves.rates(), strict=True)
    axes[2].plot(rate_at_s, np.array(rates, float), color=RATE, lw=1.6, zorder=3)
    axes[2].set_ylim(0, max([8.0, *(1.1 * rate for rate in rates if rate is not None)]))


def _lines(turns: Sequence[Any], language: str) -> list[str]:
    """Those below: each turn's time and sentence."""
    found = []
    for turn in turns[:MAX_TURNS]:
        text = f"{clock(turn.start_s)}  {turn.text or told(language, 'no speech')}"
        found += textwrap.wrap(text, LINE_WIDTH if text.isascii() else LINE_WIDTH // 2)
    if len(turns) > MAX_TURNS:
        found.append(told(language, "... and {} more: .json has them all", len(turns) - MAX_TURNS))
    return found
