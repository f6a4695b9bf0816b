"""What is measured in, levels out: the bounds that part them, and when a measure says nothing.

The one owner of the bounds: the training of the models that ship reads them here, too.
"""

from __future__ import annotations

import numpy as np

from streamer.core.measures.speech_measures import (
    MAX_CLIPPED,
    MIN_SNR_DB,
    MIN_SPEECH_S,
    SpeechMeasures,
)

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
MEASURES = {  # the field of SpeechMeasures that an attribute is a level of; arousal sums some
    "rate": "rate_syllables_per_s",
    "pitch": "pitch_median_hz",
    "variation": "pitch_sd_semitones",
    "loudness": "level_dbfs",
    "pauses": "pause_share",
    "timbre": "timbre_db",
}
NUM_LEVELS = {name: len(bounds) + 1 for name, bounds in BOUNDS.items()}
OF_NOISE = ("rate", "variation", "pauses", "timbre")  # what noise changes
OF_CLIPPING = ("loudness", "timbre")
LEAST_RATE = 1.5  # syllables/s: no text of people has fewer, and what is no speech has some


def level_of(name: str, value: float) -> int:
    """The level of an attribute's measure, which is a number."""
    return int(np.searchsorted(BOUNDS[name], value))


def standardised(
    rate: float, pitch: float, variation: float, loudness: float, pauses: float
) -> list[float]:
    """About zero mean and unit range, in the order of WEIGHTS."""
    return [
        np.log2(rate / 4.9) / 0.5,
        np.log2(pitch / 160) / 0.5,
        np.log2(variation / 1.75) / 0.9,
        (loudness + 29) / 9.0,
        (min(pauses, 0.4) - 0.1) / 0.12,
    ]


def arousal_of(z: list[float]) -> float:
    """The weighted sum of `standardised`."""
    return float(sum(weight * value for weight, value in zip(WEIGHTS.values(), z, strict=True)))


def levels_of(found: SpeechMeasures) -> dict[str, int | None]:
    """The level of each attribute, by measures of the recording alone: no text is known.

    None where it is unknown: under 1.5 s of speech all of them, in noise those that noise changes,
    in a clipped recording level and timbre, the rate where it is under LEAST_RATE. Arousal is known
    where all that it sums is.
    """
    unknown = set(BOUNDS) if found.speech_s < MIN_SPEECH_S else set()
    if found.snr_db is not None and found.snr_db < MIN_SNR_DB:
        unknown |= set(OF_NOISE)
    if found.clipped_share > MAX_CLIPPED:
        unknown |= set(OF_CLIPPING)
    if (found.rate_syllables_per_s or 0) < LEAST_RATE:
        unknown.add("rate")
    measured = {name: getattr(found, field) for name, field in MEASURES.items()}
    known = {n: v for n, v in measured.items() if v is not None and n not in unknown}
    if all(name in known for name in WEIGHTS):
        known["arousal"] = arousal_of(standardised(*(known[name] for name in WEIGHTS)))
    return {name: level_of(name, known[name]) if name in known else None for name in BOUNDS}
