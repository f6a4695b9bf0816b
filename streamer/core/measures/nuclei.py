"""In: loudness and voicing of frames of 10 ms. Out: where the nuclei of syllables are, and how many
syllables that makes.

After De Jong & Wempe (2009), "Praat script to detect syllable nuclei and measure speech rate
automatically": a nucleus is a voiced peak with a dip before it. Here the envelope is loudness in
the bands of vowels, not intensity, so that sibilants make no peak.

Peaks alone count too many where somebody speaks slowly, and too few where fast. So a rate also
reads how much the envelope moves, within 10 ms and within 160 ms. The four numbers of that sum were
fitted on training's people (`python -m bench.rate`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from streamer.core.measures.frames import LOUDNESS_POWER, percentiles
from streamer.core.measures.growing import Growing

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]

SIDE_FRAMES = 2  # an envelope's frame is smoothed with so many to both sides
DIP_DB = 1.5  # how far the level falls between two nuclei
FLOOR_DB = 30.0  # under the loudest frames there is no nucleus
LOUDEST = 95.0  # percentile
# Syllables per second of speech are a sum over its frames, over its seconds, and STEADY. The sum:
# PER_NUCLEUS for a nucleus, PER_DB for each dB that the envelope moves from frame to frame, 1 dB at
# most, and PER_SLOW_DB for each that it moves within SLOW_FRAMES, 20 dB at most.
PER_NUCLEUS = 0.824
PER_DB = 0.0524
SLOW_FRAMES, PER_SLOW_DB = 16, -0.0010
STEADY = -1.96
_KERNEL = np.hanning(2 * SIDE_FRAMES + 3)[1:-1] / np.hanning(2 * SIDE_FRAMES + 3).sum()


class Envelope:
    """One turn's envelope and its peaks, as loudness comes. A frame is final when the two behind it
    are known; what is asked for before ends as if silence followed."""

    def __init__(self) -> None:
        self._level_db = Growing(dtype=np.float64)  # of the frames that are final
        self._peaks = Growing(dtype=np.int64)
        self._search = _Search()
        self._held = np.zeros(SIDE_FRAMES)  # loudness from SIDE_FRAMES before the first unfinal one

    def add(self, loudness: Floats) -> None:
        """[n] `vowel_loudness`, of frames of 10 ms."""
        self._held = np.concatenate([self._held, loudness])
        if len(self._held) <= 2 * SIDE_FRAMES:
            return
        level_db = _level_db(self._held)
        self._held = self._held[len(level_db) :]
        self._peaks.append(self._search.push(level_db))
        self._level_db.append(level_db)

    def drop(self, num: int) -> None:
        """Forget the first `num` frames, which must be final: frames count from behind them."""
        self._level_db.drop(num)
        kept = self._peaks.values - num
        self._peaks = Growing(dtype=np.int64)
        self._peaks.append(kept[kept >= 0])
        self._search.num -= num
        self._search.best -= num

    def so_far(self) -> tuple[Doubles, Indices]:
        """Level in dB [n_frames] of all that was added, and the frames of its peaks, in order."""
        rest_db = _level_db(np.pad(self._held, (0, SIDE_FRAMES)))
        search = replace(self._search)
        peaks = np.concatenate([self._peaks.values, search.push(rest_db), search.last()])
        # one whose frame was dropped is none any more
        return np.concatenate([self._level_db.values, rest_db]), peaks[peaks >= 0]


def nuclei(level_db: Doubles, peaks: Indices, voiced: Flags, spoken: Flags) -> Indices:
    """The peaks that are nuclei: where somebody speaks with voice, not far under the loudest.

    level_db, voiced, spoken: [n_frames]. A peak may stand a frame beside what is voiced.
    """
    if not spoken.any() or not len(peaks):
        return peaks[:0]
    (loudest_db,) = percentiles(level_db[spoken], LOUDEST)
    allowed = np.zeros(len(level_db) + 2, bool)
    fit = spoken & voiced & (level_db > loudest_db - FLOOR_DB)
    for shift in range(3):
        allowed[shift : shift + len(fit)] |= fit
    return peaks[allowed[peaks + 1]]


def movement(level_db: Doubles) -> Doubles:
    """What the envelope's movement to each frame adds to the syllables there [n_frames]."""
    return PER_DB * moved(level_db, 1, 1.0) + PER_SLOW_DB * moved(level_db, SLOW_FRAMES, 20.0)


def moved(level_db: Doubles, num: int, most_db: float) -> Doubles:
    """How many dB the envelope moves within `num` frames, up to each [n_frames]."""
    found = np.zeros(len(level_db))
    found[num:] = np.minimum(np.abs(level_db[num:] - level_db[:-num]), most_db)
    return found


def syllable_rate(added: float, seconds: float) -> float:
    """Syllables per second of speech, of what its frames add. seconds > 0."""
    return max(0.0, float(added) / seconds + STEADY)


def _level_db(held: Doubles) -> Doubles:
    """Of loudness [n + 4], smoothed: [n]. Each sum has one order, whatever comes at once."""
    num = len(held) - 2 * SIDE_FRAMES
    smooth = np.zeros(max(0, num))
    for i, weight in enumerate(_KERNEL.tolist()):
        smooth += weight * held[i : i + num]
    level: Doubles = 10 * np.log10(smooth + 1e-12) / LOUDNESS_POWER
    return level


@dataclass
class _Search:
    """Maxima that a dip of DIP_DB parts from each other. best: the highest frame since the dip."""

    num: int = 0
    best: int = 0
    highest: float = -np.inf
    lowest: float = np.inf
    is_rising: bool = True

    def push(self, level_db: Doubles) -> Indices:
        """Take the next frames [n]; return those of the peaks that are sure now."""
        peaks: list[int] = []
        for i, level in enumerate(level_db.tolist(), self.num):
            if self.is_rising and level > self.highest:
                self.best = i
                self.highest = level
            elif self.is_rising and level < self.highest - DIP_DB:
                peaks.append(self.best)
                self.is_rising = False
                self.lowest = level
            elif not self.is_rising and level < self.lowest:
                self.lowest = level
            elif not self.is_rising and level > self.lowest + DIP_DB:
                self.best = i
                self.highest = level
                self.is_rising = True
        self.num += len(level_db)
        return np.array(peaks, np.int64)

    def last(self) -> Indices:
        """What would be a peak, if nothing came."""
        return np.array([self.best] if self.is_rising and self.num else [], np.int64)
