"""In: loudness and voicing of frames of 10 ms. Out: how many syllables, by peaks of loudness.

After De Jong & Wempe (2009), "Praat script to detect syllable nuclei and measure speech rate
automatically": a nucleus is a voiced peak with a dip before it. Here the envelope is loudness in
the bands of vowels, not intensity, so that sibilants make no peak.

The numbers below were chosen on 231 recordings of people whose text is known, of training's side of
the split (2026-11): mean error 0.54 syllables/s, correlation 0.83; with plain power in place of
loudness 0.60 and 0.79. Peaks miss some syllables, all over alike: hence MISSED.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamer.core.measures.frames import LOUDNESS_POWER

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]

SMOOTH_FRAMES = 5
DIP_DB = 1.5  # how far the level falls between two nuclei
FLOOR_DB = 30.0  # under the loudest frames there is no nucleus
LOUDEST = 95.0  # percentile
MISSED = 1.07  # syllables for each peak
NEAR = np.ones(3)  # a peak may stand a frame beside what is voiced


def count_syllables(loudness: Floats, voiced: Flags, spoken: Flags) -> float:
    """How many syllables the frames hold. All are [n_frames]; loudness is `vowel_loudness`."""
    return MISSED * len(nuclei(loudness, voiced, spoken))


def nuclei(loudness: Floats, voiced: Flags, spoken: Flags) -> NDArray[np.int64]:
    """The frames of the nuclei, in order."""
    if not spoken.any():
        return np.zeros(0, np.int64)
    kernel = np.hanning(SMOOTH_FRAMES + 2)[1:-1]
    smooth = np.convolve(loudness, kernel / kernel.sum(), mode="same")
    level_db = 10 * np.log10(smooth + 1e-12) / LOUDNESS_POWER
    floor_db = np.percentile(level_db[spoken], LOUDEST) - FLOOR_DB
    allowed = np.convolve(spoken & voiced & (level_db > floor_db), NEAR, mode="same") > 0
    return np.array([peak for peak in _peaks(level_db) if allowed[peak]], np.int64)


def _peaks(level_db: NDArray[np.float64]) -> list[int]:
    """Frames of the maxima that a dip of DIP_DB parts from each other, in order."""
    peaks: list[int] = []
    best = 0
    highest = lowest = float(level_db[0])
    is_rising = True
    for i, level in enumerate(level_db.tolist()):
        if is_rising and level > highest:
            best = i
            highest = level
        elif is_rising and level < highest - DIP_DB:
            peaks.append(best)
            is_rising = False
            lowest = level
        elif not is_rising and level < lowest:
            lowest = level
        elif not is_rising and level > lowest + DIP_DB:
            best = i
            highest = level
            is_rising = True
    return [*peaks, best] if is_rising else peaks
