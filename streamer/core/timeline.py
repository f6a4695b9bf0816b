"""A recording over time: curves of its pitch, level, speech and syllables, and its turns with their
sentences; as plain types or WebVTT.

docs/measures.md documents the JSON; docs/timeline.schema.json is its schema.
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.core.measures.frames import (
    FRAMES_PER_S,
    PAUSE_FRAMES,
    Flags,
    Floats,
    Frames,
    decibel,
    runs,
    without_gaps,
)
from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.core.text.chinese import comma, told

MAX_POINTS = 360_000  # an hour in steps of 10 ms, 4.7 MB; of a longer recording the step doubles
RATE_STEP_S = 0.5
RATE_OVER_S = 2.0  # the rate at a time is that of the 2 s around it,
MIN_RATE_S = 1.0  # where at least this much of them is no pause


@dataclass(frozen=True, eq=False)
class Curves:
    """One point per step. f0_hz: 0 where unvoiced or without speech; power: mean square; syllables:
    how many each holds, or what part of one."""

    step_s: float
    f0_hz: Floats
    power: Floats
    speech: Flags
    syllables: Floats

    def __len__(self) -> int:
        return len(self.f0_hz)

    @property
    def _arrays(self) -> tuple[NDArray[Any], ...]:
        return self.f0_hz, self.power, self.speech, self.syllables

    @classmethod
    def of(cls, frames: Frames) -> Curves:
        speech = frames.counted()
        power, syllables = frames.power.copy(), frames.density * speech
        return cls(1 / FRAMES_PER_S, frames.f0 * speech, power, speech, syllables)

    @classmethod
    def joined(cls, turns: Sequence[Curves]) -> Curves:
        """The curves of consecutive turns, all in steps of 10 ms; at most MAX_POINTS."""
        arrays = map(np.concatenate, zip(*(turn._arrays for turn in turns), strict=True))
        return cls(turns[0].step_s, *arrays).thinned(MAX_POINTS)

    def placed(self, before: int, num: int) -> Curves:
        """`num` steps of a turn of which these are the ones from `before` on; silence elsewhere."""
        held = [np.zeros(num, values.dtype) for values in self._arrays]
        for values, into in zip(self._arrays, held, strict=True):
            part = values[max(0, -before) : max(0, num - before)]
            into[max(0, before) :][: len(part)] = part
        return Curves(self.step_s, *held)

    def thinned(self, max_points: int) -> Curves:
        """The same in steps twice as long, and again, until it has at most `max_points`."""
        found = self
        while len(found) > max_points:
            even = len(found) // 2 * 2
            f0, power, speech, syllables = (v[:even].reshape(-1, 2) for v in found._arrays)
            f0_hz = (f0.sum(1) / np.maximum(1, (f0 > 0).sum(1))).astype(np.float32)
            step_s = 2 * found.step_s
            found = Curves(step_s, f0_hz, power.mean(1), np.any(speech, 1), syllables.sum(1))
        return found

    @property
    def level_dbfs(self) -> Floats:
        """[n]; -120 is silence."""
        return decibel(self.power)

    @property
    def talk_s(self) -> list[tuple[float, float]]:
        """(begin, end) of each stretch of speech. Between two lies a pause of 180 ms or more."""
        return [(begin * self.step_s, end * self.step_s) for begin, end in runs(self._talking())]

    @property
    def pauses_s(self) -> list[tuple[float, float]]:
        """(begin, end) of each."""
        return [(end, begin) for (_, end), (begin, _) in itertools.pairwise(self.talk_s)]

    @property
    def nuclei_s(self) -> list[float]:
        """A time in s for each syllable counted: where the count passes a half, and each whole
        more."""
        added = np.cumsum(self.syllables, dtype=float)
        halves = np.arange(0.5, added[-1] if len(added) else 0.0)
        found: list[float] = ((np.searchsorted(added, halves) + 0.5) * self.step_s).tolist()
        return found

    def rates(self) -> Iterator[tuple[float, float | None]]:
        """(time in s, syllables per second of speech around it), every RATE_STEP_S. None in a
        pause."""
        added = np.concatenate([[0], np.cumsum(self.syllables, dtype=float)])
        spoken = np.concatenate([[0], np.cumsum(self._talking())])
        half = round(RATE_OVER_S / 2 / self.step_s)
        for i in range(int(len(self) * self.step_s / RATE_STEP_S) + 1):
            at = round(i * RATE_STEP_S / self.step_s)
            first, last = max(0, at - half), min(len(self), at + half)
            seconds = float(spoken[last] - spoken[first]) * self.step_s
            rate = float(added[last] - added[first]) / max(seconds, MIN_RATE_S)
            yield i * RATE_STEP_S, rate if seconds >= MIN_RATE_S else None

    def _talking(self) -> Flags:
        """From the first speech to the last, without pauses."""
        return without_gaps(self.speech, PAUSE_FRAMES / FRAMES_PER_S / self.step_s - 1e-6)


@dataclass(frozen=True, eq=False)
class Timeline:
    """One recording. `streamer.write_timeline` writes it to a file."""

    file: str
    duration_s: float
    curves: Curves
    turns: Sequence[Any]  # Descriptions with measures
    channel: int | None = None  # of the recording, from 0; None: the loudest at each time

    def as_json(self) -> dict[str, Any]:
        """Plain types; the field names have the units. None: unvoiced, or a pause."""
        curves = self.curves
        return {
            "version": 1,
            # strict readers refuse half of a pair, as in a name that is no UTF-8
            "file": self.file.encode(errors="backslashreplace").decode(),
            **({} if self.channel is None else {"channel": self.channel}),
            "duration_s": round(self.duration_s, 3),
            "step_s": curves.step_s,
            "f0_hz": [None if hz == 0 else hz for hz in _rounded(curves.f0_hz)],
            "level_dbfs": _rounded(curves.level_dbfs),
            "rate_step_s": RATE_STEP_S,
            "rate_syllables_per_s": [
                rate if rate is None else round(rate, 2) for _, rate in curves.rates()
            ],
            "pauses": [{"start_s": round(a, 3), "end_s": round(b, 3)} for a, b in curves.pauses_s],
            "turns": [_row_of(turn) for turn in self.turns],
        }


def _row_of(turn: Any) -> dict[str, Any]:
    """A turn of the JSON. turn: a Description with measures."""
    return {
        "start_s": round(turn.start_s, 3),
        "end_s": round(turn.end_s, 3),
        "text": turn.text,
        "language": turn.language,
        "attributes": turn.attributes,
        "levels": turn.levels,
        "measures": turn.measures.as_json(),
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


def _rounded(values: np.ndarray) -> list[float]:
    return [round(value, 1) for value in values.tolist()]
