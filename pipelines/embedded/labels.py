"""In: a CLEAN log-mel, its f0 track and its syllable count. Out: seven measures, and the level
of each.

Everything is measured before noise and rooms are added, and on frames, so that clips joined,
stretched, made louder or brighter in the mel domain get exact labels without a second pass over
samples.
"""

from dataclasses import dataclass

import numpy as np

from pipelines.embedded.mel import band_hz, band_peak

SILENT_DB = 25.0  # this far under the active level a frame is silent
PAUSE_FRAMES = 18  # 180 ms: shorter gaps are stop consonants
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


def frame_power(raw: np.ndarray, low_hz: float = 0.0, high_hz: float = 8000.0) -> np.ndarray:
    """Mean square of the signal in a band, per frame [n_frames], back from log10 slaney mel.

    Slaney filters have unit area. Divided by their peak they are a partition of unity: Parseval
    holds.
    """
    inside = (band_hz() >= low_hz) & (band_hz() < high_hz)
    unit = band_peak()[inside]
    return 2.0 * (10.0 ** raw[:, inside].astype(np.float32) / unit).sum(1) / (400 * 150)


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
    level_db = 10 * np.log10(power + 1e-12)
    spoken = np.ones(len(raw), bool) if speech is None else speech
    if spoken.sum() < 20:
        raise ValueError("no speech")
    loud = spoken & (level_db > np.percentile(level_db[spoken], 95) - SILENT_DB)
    active_db = 10 * np.log10(power[loud].mean() + 1e-12)
    heard = spoken & (level_db > active_db - SILENT_DB)
    talking = heard if speech is None else speech
    first, last = np.flatnonzero(talking)[[0, -1]]
    span = last - first + 1
    paused = paused_frames(~talking[first : last + 1])
    voiced = f0[heard & (f0 > 0)].astype(np.float32)
    if len(voiced) < 20 or (num_syllables is not None and num_syllables < 1):
        raise ValueError("no voiced speech")
    pitch = float(np.median(voiced))
    semitones = 12 * np.log2(voiced / pitch)
    variation = max(0.1, float(np.std(semitones[np.abs(semitones) < 12])))  # beyond: octave errors
    rate = float("nan") if num_syllables is None else 100.0 * num_syllables / (span - paused)
    low, high = (frame_power(raw[heard], *band).mean() for band in ((80, 1000), (1000, 5000)))
    z = _z(rate, pitch, variation, active_db, paused / span)
    arousal = sum(weight * value for weight, value in zip(WEIGHTS.values(), z, strict=True))
    tilt = 10 * np.log10(high / low)
    return Measures(
        rate, pitch, variation, float(active_db), paused / span, float(tilt), float(arousal)
    )


def paused_frames(silent: np.ndarray) -> int:
    """Frames in stretches of `silent` that are long enough for a pause."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], silent.astype(np.int8), [0]])))
    lengths = edges[1::2] - edges[::2]
    return int(lengths[lengths >= PAUSE_FRAMES].sum())
