"""In: a CLEAN log-mel, its f0 track and its syllable count. Out: seven measures, and the level
of each.

Everything is measured before noise and rooms are added, and on frames, so that clips joined,
stretched, made louder or brighter in the mel domain get exact labels without a second pass over
samples.
"""

from dataclasses import dataclass

import numpy as np

from streamer.core.measures.frames import (
    BRIGHT_HZ,
    FRAMES_PER_S,
    MIN_FRAMES,
    VOICE_HZ,
    active_level,
    frame_power,
    pause_frames,
    span_of,
)
from streamer.core.measures.frames import PAUSE_FRAMES as PAUSE_FRAMES
from streamer.core.measures.pitch import pitch_stats

WEIGHTS = {"rate": 0.40, "pitch": 0.22, "variation": 0.30, "loudness": 0.30, "pauses": -0.20}
BOUNDS = {
    "rate": (3.2, 4.3, 5.6, 7.0),  # syllables per second of speech
    "pitch": (115.0, 165.0, 225.0),  # median f0, Hz
    "variation": (1.2, 2.6),  # SD of f0, semitones
    "loudness": (-38.0, -29.0, -20.0),  # active level, dBFS
    "pauses": (0.03, 0.16),  # pauses over the span of speech
    "timbre": (-13.0, -6.0),  # 1-5 kHz over 80-1000 Hz, dB
    "arousal": (-0.35, 0.35),  # weighted z-sum
}
ATTRIBUTES = tuple(BOUNDS)
NUM_LEVELS = {name: len(bounds) + 1 for name, bounds in BOUNDS.items()}


@dataclass(frozen=True)
class Measures:
    """One clip's measures, in the units of BOUNDS."""

    rate: float
    pitch: float
    variation: float
    loudness: float
    pauses: float
    timbre: float
    arousal: float

    def levels(self) -> dict[str, int | None]:
        """Level of each attribute; None for one that was not measured."""
        values = {name: getattr(self, name) for name in ATTRIBUTES}
        return {
            name: None if np.isnan(value) else int(np.searchsorted(BOUNDS[name], value))
            for name, value in values.items()
        }

    def vector(self) -> np.ndarray:
        """About zero mean and unit range, [7]: regression targets, and what arousal and word
        order use."""
        return np.array(
            [
                *_z(self.rate, self.pitch, self.variation, self.loudness, self.pauses),
                (self.timbre + 9.5) / 6.0,
                self.arousal * 2.0,
            ],
            np.float32,
        )


def _z(rate: float, pitch: float, variation: float, loudness: float, pauses: float) -> list[float]:
    return [
        np.log2(rate / 4.9) / 0.5,
        np.log2(pitch / 160) / 0.5,
        np.log2(variation / 1.75) / 0.9,
        (loudness + 29) / 9.0,
        (min(pauses, 0.4) - 0.1) / 0.12,
    ]


def measure(
    raw: np.ndarray, f0: np.ndarray, num_syllables: float | None, speech: np.ndarray | None = None
) -> Measures:
    """Measure `raw` [n_frames, 128] log10 mel with `f0` [n_frames] Hz, 0 where unvoiced.

    `speech` [n_frames] bool says in which frames somebody speaks (speech.py): recordings of people
    need it. Without it, every frame within 25 dB of the active level is speech, which holds for
    clean synthetic voices only. Without syllables, rate and arousal are NaN. Raises ValueError when
    too little of it is voiced.
    """
    power = frame_power(raw)
    spoken = np.ones(len(raw), bool) if speech is None else speech
    if spoken.sum() < MIN_FRAMES:
        raise ValueError("no speech")
    active_db, heard = active_level(power, spoken)
    talking = heard if speech is None else speech
    first, end = span_of(talking)
    paused = paused_frames(~talking[first:end])
    voiced = f0[heard & (f0 > 0)].astype(np.float32)
    if len(voiced) < MIN_FRAMES or (num_syllables is not None and num_syllables < 1):
        raise ValueError("no voiced speech")
    found = pitch_stats(voiced)
    pitch, variation = found.median_hz, found.sd_semitones
    span = end - first
    rate = float("nan") if num_syllables is None else FRAMES_PER_S * num_syllables / (span - paused)
    low, high = (frame_power(raw[heard], *band).mean() for band in (VOICE_HZ, BRIGHT_HZ))
    z = _z(rate, pitch, variation, active_db, paused / span)
    arousal = sum(weight * value for weight, value in zip(WEIGHTS.values(), z, strict=True))
    tilt = 10 * np.log10(high / low)
    return Measures(
        rate, pitch, variation, float(active_db), paused / span, float(tilt), float(arousal)
    )


def paused_frames(silent: np.ndarray) -> int:
    """Frames in stretches of `silent` that are long enough for a pause."""
    return int(pause_frames(silent).sum())
