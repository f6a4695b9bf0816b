"""In: loudness and voicing of frames of 10 ms. Out: where the nuclei of syllables are, and how many
syllables that makes.

After De Jong & Wempe (2009), "Praat script to detect syllable nuclei and measure speech rate
automatically": a nucleus is a voiced peak with a dip before it. Here the envelope is loudness in
the bands of vowels, not intensity, so that sibilants make no peak.

Peaks alone count too many where somebody speaks slowly, and too few where fast. So a rate also
reads how much the envelope moves within 10 ms, and how often it beats: rises over its own mean. The
four numbers of that sum were fitted on training's people (`python -m bench.rate`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.lib.stride_tricks import as_strided
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
# most, and PER_BEAT where its mean of 70 ms begins to be over that of 0.4 s.
PER_NUCLEUS = 0.742
PER_DB = 0.0326
PER_BEAT = 0.346
STEADY = -2.70
BEAT_FRAMES, AROUND_FRAMES = 3, 20  # to both sides


def _bell(num: int) -> Doubles:
    """A Hann window of `num` frames to both sides, of sum 1."""
    window = np.hanning(2 * num + 3)[1:-1]
    return window / window.sum()


_KERNEL = _bell(SIDE_FRAMES)
_BEAT = np.pad(_bell(BEAT_FRAMES), AROUND_FRAMES - BEAT_FRAMES) - _bell(AROUND_FRAMES)


class Envelope:
    """One turn's envelope and its peaks, as loudness comes. A frame is final when the two behind it
    are known; what is asked for before ends as if silence followed."""

    def __init__(self) -> None:
        self._level_db = Growing(dtype=np.float64)  # of the frames that are final
        self._movement = Growing(dtype=np.float64)  # of those whose beat is, too
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
        num = len(self._level_db) - AROUND_FRAMES - len(self._movement)
        self._movement.append(
            self._moved(self._level_db.values, len(self._movement))[: max(0, num)]
        )

    def drop(self, num: int) -> None:
        """Forget the first `num` frames, which must be final: frames count from behind them."""
        self._level_db.drop(num)
        self._movement.drop(num)
        kept = self._peaks.values - num
        self._peaks = Growing(dtype=np.int64)
        self._peaks.append(kept[kept >= 0])
        self._search.num -= num
        self._search.best -= num

    def so_far(self) -> tuple[Doubles, Doubles, Indices]:
        """Level in dB [n_frames] of all that was added, what its movement adds to the syllables
        [n_frames], and the frames of its peaks, in order."""
        rest_db = _level_db(np.concatenate([self._held, np.zeros(SIDE_FRAMES)]))
        search = replace(self._search)
        peaks = np.concatenate([self._peaks.values, search.push(rest_db), search.last()])
        level_db = np.concatenate([self._level_db.values, rest_db])
        kept = self._movement.values
        movement = np.concatenate([kept, self._moved(level_db, len(kept))])
        # one whose frame was dropped is none any more
        return level_db, movement, peaks[peaks >= 0]

    def _moved(self, level_db: Doubles, first: int) -> Doubles:
        """What the movement to each frame from `first` on adds to the syllables."""
        return PER_DB * steps_db(level_db, first) + PER_BEAT * beats(level_db, first)


def nuclei(level_db: Doubles, peaks: Indices, voiced: Flags, spoken: Flags) -> Indices:
    """The peaks that are nuclei: where somebody speaks with voice, not far under the loudest.

    level_db, voiced, spoken: [n_frames]. A peak may stand a frame beside what is voiced.
    """
    if not spoken.any() or not len(peaks):
        return peaks[:0]
    (loudest_db,) = percentiles(np.sort(level_db[spoken]), LOUDEST)
    beside = np.clip(np.add.outer((-1, 0, 1), peaks), 0, len(level_db) - 1)
    fit = spoken[beside] & voiced[beside] & (level_db[beside] > loudest_db - FLOOR_DB)
    return peaks[fit.any(0)]


def steps_db(level_db: Doubles, first: int = 0) -> Doubles:
    """How many dB the envelope moves to each frame from `first` on, 1 at most."""
    near = level_db[max(0, first - 1) :]
    found = np.zeros(len(level_db) - first)
    found[len(found) - len(near) + 1 :] = np.minimum(np.abs(near[1:] - near[:-1]), 1.0)
    return found


def beats(level_db: Doubles, first: int = 0) -> Flags:
    """Whether each frame from `first` on begins a beat, as if silence followed: in loudness, so
    that a loud syllable is one whatever its shape."""
    known = level_db[max(0, first - 1 - AROUND_FRAMES) :]
    before = max(0, AROUND_FRAMES + 1 - first)
    loudness = np.zeros(before + len(known) + AROUND_FRAMES)
    loudness[before : before + len(known)] = 10 ** (LOUDNESS_POWER / 10 * known)
    num = len(loudness) + 1 - len(_BEAT)
    # each frame's sum has one order, whatever is asked for at once
    around = as_strided(loudness, (num, len(_BEAT)), 2 * loudness.strides)
    over = (around * _BEAT).sum(1) > 0
    found: Flags = over[1:] & ~over[:-1]
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
