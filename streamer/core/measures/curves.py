"""How F0, level, speech and syllables go along a recording. In: a turn's Frames. Out: Curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.core.measures.frames import FRAMES_PER_S, PAUSE_FRAMES, decibel
from streamer.core.measures.track import Flags, Floats, Frames

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

    @classmethod
    def of(cls, frames: Frames) -> Curves:
        speech = frames.counted()
        power, syllables = frames.power.copy(), frames.density * speech
        return cls(1 / FRAMES_PER_S, frames.f0 * speech, power, speech, syllables)

    @classmethod
    def joined(cls, turns: Sequence[Curves]) -> Curves:
        """The curves of consecutive turns, all in steps of 10 ms; at most MAX_POINTS."""
        found = cls(
            turns[0].step_s,
            np.concatenate([turn.f0_hz for turn in turns]),
            np.concatenate([turn.power for turn in turns]),
            np.concatenate([turn.speech for turn in turns]),
            np.concatenate([turn.syllables for turn in turns]),
        )
        return found.thinned(MAX_POINTS)

    def placed(self, before: int, num: int) -> Curves:
        """`num` steps of a turn of which these are the ones from `before` on; silence elsewhere."""
        to, since = slice(max(0, before), num), slice(max(0, -before), max(0, num - before))

        def put(values: NDArray[Any]) -> NDArray[Any]:
            held = np.zeros(num, values.dtype)
            part = values[since]
            held[to][: len(part)] = part
            return held

        return Curves(self.step_s, *map(put, (self.f0_hz, self.power, self.speech, self.syllables)))

    def thinned(self, max_points: int) -> Curves:
        """The same in steps twice as long, and again, until it has at most `max_points`."""
        found = self
        while len(found) > max_points:
            found = found._halved()
        return found

    @property
    def level_dbfs(self) -> Floats:
        """[n]; -120 is silence."""
        return decibel(self.power)

    @property
    def pauses_s(self) -> list[tuple[float, float]]:
        """(begin, end) of each stretch of 180 ms and more without speech that speech encloses."""
        edges = np.flatnonzero(np.diff(self.speech.astype(np.int8), prepend=0, append=0))
        ends, begins = edges[1:-1:2], edges[2::2]
        least = PAUSE_FRAMES / FRAMES_PER_S / self.step_s
        return [
            (a * self.step_s, b * self.step_s)
            for a, b in zip(ends.tolist(), begins.tolist(), strict=True)
            if b - a >= least - 1e-6
        ]

    @property
    def span_s(self) -> tuple[float, float] | None:
        """(begin of the first speech, end of the last) in s; None without speech."""
        spoken = np.flatnonzero(self.speech)
        if not len(spoken):
            return None
        return float(spoken[0] * self.step_s), float((spoken[-1] + 1) * self.step_s)

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
        talking = self._talking()
        added = np.concatenate([[0], np.cumsum(self.syllables, dtype=float)])
        spoken = np.concatenate([[0], np.cumsum(talking)])
        half = round(RATE_OVER_S / 2 / self.step_s)
        for i in range(int(len(self) * self.step_s / RATE_STEP_S) + 1):
            at = round(i * RATE_STEP_S / self.step_s)
            first, last = max(0, at - half), min(len(self), at + half)
            seconds = float(spoken[last] - spoken[first]) * self.step_s
            rate = float(added[last] - added[first]) / max(seconds, MIN_RATE_S)
            yield i * RATE_STEP_S, rate if seconds >= MIN_RATE_S else None

    def _talking(self) -> Flags:
        """From the first speech to the last, without pauses."""
        found = np.zeros(len(self), bool)
        spoken = np.flatnonzero(self.speech)
        if len(spoken):
            found[spoken[0] : spoken[-1] + 1] = True
        for begin_s, end_s in self.pauses_s:
            found[round(begin_s / self.step_s) : round(end_s / self.step_s)] = False
        return found

    def _halved(self) -> Curves:
        even = len(self) // 2 * 2
        f0 = self.f0_hz[:even].reshape(-1, 2)
        num = np.maximum(1, (f0 > 0).sum(1))
        return Curves(
            2 * self.step_s,
            (f0.sum(1) / num).astype(np.float32),
            self.power[:even].reshape(-1, 2).mean(1),
            self.speech[:even:2] | self.speech[1:even:2],
            self.syllables[:even].reshape(-1, 2).sum(1),
        )
