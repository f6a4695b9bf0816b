"""In: F0 of voiced frames. Out: where the voice lies, and how far it moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.core.measures.frames import mean_and_sd, median, percentiles

OCTAVE = 12.0  # semitones: further from the median a frame is a tracker's error
MIN_SEMITONES = 0.1


@dataclass(frozen=True, slots=True)
class PitchStats:
    """Of all voiced frames: median, mean and SD in Hz, SD and 5th to 95th percentile in
    semitones."""

    median_hz: float
    sd_semitones: float
    range_semitones: float
    mean_hz: float
    sd_hz: float


def own_range(voiced_hz: NDArray[np.float32]) -> tuple[float, float]:
    """Between which frequencies a voice lies, of a first look at it [n], n > 0: what lies beyond
    are mostly errors of an octave (De Looze & Hirst, 2008)."""
    low, high = percentiles(np.sort(voiced_hz), 15, 85)
    return 0.75 * low, 1.6 * high


def pitch_stats(voiced_hz: NDArray[np.float32]) -> PitchStats:
    """`voiced_hz` [n], n > 0, all above 0. Frames an octave off the median count for the median
    alone."""
    middle_hz = median(np.sort(voiced_hz))
    semitones = 12 * np.log2(voiced_hz / middle_hz)
    is_near = np.abs(semitones) < OCTAVE
    near = semitones[is_near]
    low, high = percentiles(np.sort(near), 5, 95)
    mean_hz, sd_hz = mean_and_sd(voiced_hz[is_near])
    return PitchStats(
        median_hz=middle_hz,
        sd_semitones=max(MIN_SEMITONES, mean_and_sd(near)[1]),
        range_semitones=float(high - low),
        mean_hz=mean_hz,
        sd_hz=sd_hz,
    )
