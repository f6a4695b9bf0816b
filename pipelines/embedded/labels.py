"""Seven measures of a clean log-mel with its f0 track and syllable count, and their levels.

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
    pitch_stats,
    span_of,
)
from streamer.core.measures.frames import PAUSE_FRAMES as PAUSE_FRAMES
from streamer.core.measures.levels import BOUNDS, arousal_of, level_of, standardised
from streamer.core.measures.levels import NUM_LEVELS as NUM_LEVELS

ATTRIBUTES = tuple(BOUNDS)


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
            name: None if np.isnan(value) else level_of(name, value)
            for name, value in values.items()
        }

    def vector(self) -> np.ndarray:
        """About zero mean and unit range, [7]: regression targets, and what arousal and word
        order use."""
        return np.array(
            [
                *standardised(self.rate, self.pitch, self.variation, self.loudness, self.pauses),
                (self.timbre + 9.5) / 6.0,
                self.arousal * 2.0,
            ],
            np.float32,
        )


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
    arousal = arousal_of(standardised(rate, pitch, variation, active_db, paused / span))
    tilt = 10 * np.log10(high / low)
    return Measures(
        rate, pitch, variation, float(active_db), paused / span, float(tilt), float(arousal)
    )


def paused_frames(silent: np.ndarray) -> int:
    """Frames in stretches of `silent` that are long enough for a pause."""
    return int(pause_frames(silent).sum())
