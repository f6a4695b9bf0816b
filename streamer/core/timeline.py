"""A recording over time, as plain types or WebVTT: curves, and turns with their sentences.

docs/measures.md documents the JSON; docs/timeline.schema.json is its schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamer.core.measures.curves import RATE_STEP_S, Curves
from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.core.text.chinese import comma, told

VERSION = 1


@dataclass(frozen=True)
class TimedTurn:
    """A turn, or a part. Times in s of the recording; attributes as in Description."""

    start_s: float
    end_s: float
    text: str
    attributes: dict[str, int | None]
    measures: SpeechMeasures
    language: str = "zh"
    levels: Mapping[str, Any] = field(default_factory=dict)  # as Description.levels


@dataclass(frozen=True, eq=False)
class Timeline:
    """One recording. `streamer.write_timeline` writes it to a file."""

    file: str
    duration_s: float
    curves: Curves
    turns: Sequence[TimedTurn]
    channel: int | None = None  # of the recording, from 0; None: all of them, mixed

    def as_json(self) -> dict[str, Any]:
        """Plain types; the field names have the units. None: unvoiced, or a pause."""
        curves = self.curves
        f0 = [None if hz == 0 else hz for hz in _rounded(curves.f0_hz)]
        return {
            "version": VERSION,
            "file": self.file,
            **({} if self.channel is None else {"channel": self.channel}),
            "duration_s": round(self.duration_s, 3),
            "step_s": curves.step_s,
            "f0_hz": f0,
            "level_dbfs": _rounded(curves.level_dbfs),
            "rate_step_s": RATE_STEP_S,
            "rate_syllables_per_s": [
                rate if rate is None else round(rate, 2) for _, rate in curves.rates()
            ],
            "pauses": [{"start_s": round(a, 3), "end_s": round(b, 3)} for a, b in curves.pauses_s],
            "turns": [
                {
                    "start_s": round(turn.start_s, 3),
                    "end_s": round(turn.end_s, 3),
                    "text": turn.text,
                    "language": turn.language,
                    "attributes": turn.attributes,
                    "levels": turn.levels,
                    "measures": turn.measures.as_json(),
                }
                for turn in self.turns
            ],
        }

    def as_vtt(self) -> str:
        """WebVTT: a cue for each turn with speech, its sentence above its measures."""
        return captions([self])


def captions(channels: Sequence[Timeline]) -> str:
    """WebVTT of the channels of a recording; of several, a cue's voice is its channel."""
    cues = ["WEBVTT\n"]
    turns = [(turn, each.channel) for each in channels for turn in each.turns]
    for number, (turn, channel) in enumerate(sorted(turns, key=lambda pair: pair[0].start_s), 1):
        if turn.text and _ms(turn.end_s) > _ms(turn.start_s):
            when = f"{_clock(turn.start_s)} --> {_clock(turn.end_s)}"
            voice = f"<v channel {channel}>" if len(channels) > 1 else ""
            numbers = told_of(turn, turn.language)
            cue = "\n".join(filter(None, (" ".join(turn.text.split()), numbers)))
            cues.append(f"{number}\n{when}\n{voice}{_escaped(cue)}\n")
    return "\n".join(cues)


def main_measures(m: SpeechMeasures) -> tuple[tuple[str, float | None], ...]:
    """The most important measures, each with its form; those of an interval have no pauses."""
    return (
        ("{:.1f} syllables/s", m.rate_syllables_per_s),
        ("{:.0f} Hz", m.pitch_median_hz),
        ("SD {:.1f} semitones", m.pitch_sd_semitones),
        ("{:.0f} dBFS", m.level_dbfs),
    )


def told_of(turn: TimedTurn, language: str = "en") -> str:
    """The most important measures in one line, without unknown ones."""
    share = turn.measures.pause_share
    parts = (
        *main_measures(turn.measures),
        ("{:.0f} % pauses", None if share is None else 100 * share),
    )
    known = [told(language, form, value) for form, value in parts if value is not None]
    return comma(language).join(known)


def _rounded(values: np.ndarray) -> list[float]:
    return [round(value, 1) for value in values.tolist()]


def _ms(seconds: float) -> int:
    return round(1000 * seconds)


def _clock(seconds: float) -> str:
    """hh:mm:ss.ttt, as in WebVTT."""
    ms = _ms(seconds)
    return f"{ms // 3_600_000:02d}:{ms // 60_000 % 60:02d}:{ms // 1000 % 60:02d}.{ms % 1000:03d}"


def _escaped(text: str) -> str:
    """The text of a cue, without tags and arrows."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
