"""From measures to levels: the bounds between them, and the chance of each level.

The one owner of the bounds: the training of the models that ship reads them here, too.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamer.core.measures.speech_measures import (
    MAX_CLIPPED,
    MIN_SNR_DB,
    MIN_SPEECH_S,
    SpeechMeasures,
)
from streamer.core.rules.settings import LevelWeights, quantised

BOUNDS = {
    "rate": (3.2, 4.3, 5.6, 7.0),  # syllables per second of speech
    "pitch": (115.0, 165.0, 225.0),  # median f0, Hz
    "variation": (1.2, 2.6),  # SD of f0, semitones
    "loudness": (-38.0, -29.0, -20.0),  # active level, dBFS
    "pauses": (0.03, 0.16),  # pauses over the span of speech
    "timbre": (-13.0, -6.0),  # 1-5 kHz over 80-1000 Hz, dB
    "arousal": (-0.35, 0.35),  # weighted z-sum
}
# attribute -> the field of SpeechMeasures that it is a level of, the unit that people read, the
# field's factor for it, its decimals; arousal sums some of them
MEASURES = {
    "rate": ("rate_syllables_per_s", "syllables/s", 1, 1),
    "pitch": ("pitch_median_hz", "Hz", 1, 0),
    "variation": ("pitch_sd_semitones", "semitones", 1, 1),
    "loudness": ("level_dbfs", "dBFS", 1, 0),
    "pauses": ("pause_share", "% of the time", 100, 0),
    "timbre": ("timbre_db", "dB", 1, 1),
}
NUM_LEVELS = {name: len(bounds) + 1 for name, bounds in BOUNDS.items()}
OF_NOISE = ("rate", "variation", "pauses", "timbre")  # what noise changes
OF_CLIPPING = ("loudness", "timbre")
OF_PITCH = ("pitch", "variation")  # what nothing is said about where there is no pitch
LEAST_RATE = 1.5  # syllables/s: no text of people has fewer, and what is no speech has some


def level_of(name: str, value: float) -> int:
    """The level of an attribute's measure, which is a number."""
    return int(np.searchsorted(BOUNDS[name], value))


def standardised(*values: float) -> list[float]:
    """The measures of AROUSAL in their order, each with about zero mean and unit range."""
    named = zip(AROUSAL, values, strict=True)
    return [_standard(name, float(on_axis(name, value))) for name, value in named]


def arousal_of(z: list[float]) -> float:
    return float(sum(of[0] * value for of, value in zip(AROUSAL.values(), z, strict=True)))


def _standard(name: str, at: float) -> float:
    _, slope, offset = AROUSAL[name]
    return slope * ((min(at, MOST_PAUSES) if name == "pauses" else at) - offset)


def levels_of(found: SpeechMeasures) -> dict[str, int | None]:
    """The level of each attribute, by measures of the recording alone: no text is known.

    None where it is unknown: under 1.5 s of speech all of them, in noise those that noise changes,
    in a clipped recording level and timbre, the rate where it is under LEAST_RATE. Arousal is known
    where all that it sums is.
    """
    known = measured(found) if found.speech_s >= MIN_SPEECH_S else {}
    is_noisy = found.snr_db is not None and found.snr_db < MIN_SNR_DB
    is_clipped = found.clipped_share > MAX_CLIPPED
    for name in (*(OF_NOISE if is_noisy else ()), *(OF_CLIPPING if is_clipped else ())):
        known.pop(name, None)
    if known.keys() >= AROUSAL.keys():
        known["arousal"] = arousal_of(standardised(*(known[name] for name in AROUSAL)))
    return {name: level_of(name, known[name]) if name in known else None for name in BOUNDS}


Doubles = NDArray[np.float64]
ERRORS = Path(__file__).with_name("level_errors.json")
FEATURES = ("constant", "length", "noise", "no noise known", "clipping", "filled", "narrow")
CLEAN_SNR_DB = 25.0  # noise further under the speech than this changes no measure
# Noise, other voices and echoes fill the dips between syllables: under this many dB they do.
DEEP_DB = 30.0
NARROW_DB = (-32.0, -44.0)  # a telephone has little outside its band: none of it to all of it
# In a crowd the square of `crowd_db`, in steps of 10 dB, adds to the exponents of a model's
# opinion, but for the rate: the count of syllables is the better one even then.
CROWD_OPINION = 0.5
# By telephone a model says these more often rightly than a measure that misses half of the bands.
NARROW_OPINION = {"pitch": 1.0, "variation": 0.5, "timbre": 0.5}
LEAST_CHANCE = 0.002  # shared by all levels: the labels err, too
IN_OCTAVES = ("rate", "pitch", "variation")
# measure -> its weight in arousal's sum; slope and offset of its term on the measure's axis
AROUSAL = {
    "rate": (0.40, 2.0, math.log2(4.9)),
    "pitch": (0.22, 2.0, math.log2(160)),
    "variation": (0.30, 1 / 0.9, math.log2(1.75)),
    "loudness": (0.30, 1 / 9, -29.0),
    "pauses": (-0.20, 1 / 0.12, 0.1),
}
MOST_PAUSES = 0.4  # that count for arousal
# A mixture of two logistic distributions: places, widths and shares, [2] each.
Spread = tuple[Doubles, Doubles, Doubles]


@dataclass(frozen=True, slots=True)
class MeasureError:
    """The error of one attribute's measure, on its axis; a number for each feature."""

    centre: float  # mean and SD of people
    sd: float
    shift: Sequence[float]  # of the wide distribution
    slope: Sequence[float]  # its shift for each unit off the centre
    narrow: Sequence[float]  # log of a width
    wide: Sequence[float]
    doubt: Sequence[float]  # log odds that the wide distribution holds

    def spread(self, value: float | None, features: Doubles) -> Spread:
        """value: as measured, on the attribute's axis; None gives the distribution of people."""
        if value is None:
            width = self.sd * math.sqrt(3) / math.pi
            return np.full(2, self.centre), np.full(2, width), np.full(2, 0.5)
        shift = features @ self.shift + (value - self.centre) * (features @ self.slope)
        widths = np.exp(np.array([features @ self.narrow, features @ self.wide]))
        doubt = 1 / (1 + math.exp(-float(features @ self.doubt)))
        return np.array([value, value + shift]), widths, np.array([1 - doubt, doubt])


@dataclass(frozen=True)
class Learnt:
    """level_errors.json. arousal: shift, factor and least variance of its sum. opinion: the
    exponent of a model's own chances beside those of the measures, in a clean recording."""

    errors: dict[str, MeasureError]
    arousal: tuple[float, float, float]
    opinion: dict[str, float]


@functools.cache
def learnt() -> Learnt:
    """The numbers that ship. Raises OSError where the file is missing."""
    return msgspec.json.decode(ERRORS.read_bytes(), type=Learnt)


def level_weights(found: SpeechMeasures, phrases: Mapping[str, Sized]) -> LevelWeights:
    """The weight of each level beside a model's opinion; phrases: of the model's card. An attribute
    without a measure is flat, as is one whose levels in `phrases` are not ours. Of speech without a
    pitch, such as a whisper, no attribute of OF_PITCH is said."""
    opinion, known = opinion_of(found), level_chances(found)
    weights = {
        name: (np.log(chances) / opinion[name]).tolist()
        for name, chances in known.items()
        if len(phrases.get(name, ())) == len(chances)
    }
    unsaid = [name for name in OF_PITCH if known and name in phrases and name not in known]
    return {**quantised(weights), **dict.fromkeys(unsaid, ())}


def opinion_of(found: SpeechMeasures) -> dict[str, float]:
    """attribute -> the exponent of a model's own chances beside the measures', 1 at most."""
    crowd = CROWD_OPINION * (found.crowd_db / 10) ** 2
    narrowed, exponents = float(features_of(found)[-1]), {}
    for name, clean in learnt().opinion.items():
        more = NARROW_OPINION.get(name, 0.0) * narrowed
        exponents[name] = min(1.0, clean + more + (0.0 if name == "rate" else crowd))
    return exponents


def level_chances(found: SpeechMeasures) -> dict[str, Doubles]:
    """attribute -> the chance of each level [levels], by the measures alone."""
    spreads, under = spreads_of(found), {}  # under: the chance to be under each bound
    for name in values_of(found):
        places, widths, shares = spreads[name]
        bounds = on_axis(name, BOUNDS[name])[:, None]
        under[name] = (shares * _logistic(bounds, places, widths)).sum(1)
    if under:
        mean, variance = arousal_sum(spreads)
        shift, factor, least = learnt().arousal
        width = factor * math.sqrt(variance + least)
        under["arousal"] = _logistic(np.array(BOUNDS["arousal"]), mean + shift, width)
    chances = {name: np.diff(each, prepend=0.0, append=1.0) for name, each in under.items()}
    return {n: (1 - LEAST_CHANCE) * each + LEAST_CHANCE / len(each) for n, each in chances.items()}


def expected_errors(found: SpeechMeasures) -> dict[str, float]:
    """attribute -> the mean absolute error to expect of its measure, in the measure's own unit."""
    spreads, errors = spreads_of(found), {}
    for name, value in values_of(found).items():
        places, widths, shares = spreads[name]
        away = np.abs(value - places) / (2 * widths)
        # 2 w ln(2 cosh(d / 2 w)), in a form that does not overflow
        off = float(shares @ (2 * widths * np.logaddexp(away, -away)))
        errors[name] = 2.0**value * (2.0**off - 1) if name in IN_OCTAVES else off
    return errors


def spreads_of(found: SpeechMeasures) -> dict[str, Spread]:
    """attribute -> where its true value lies, on its axis; as of all people without a measure."""
    features, values = features_of(found), values_of(found)
    errors = learnt().errors.items()
    return {name: error.spread(values.get(name), features) for name, error in errors}


def features_of(found: SpeechMeasures) -> Doubles:
    """The features that the errors depend on, in the order of FEATURES."""
    noise = 0.0 if found.snr_db is None else max(0.0, CLEAN_SNR_DB - found.snr_db) / 10
    length = math.log2(min(max(found.speech_s, 0.5), 32.0) / 4)
    clipping = min(1.0, math.sqrt(found.clipped_share / 0.05))
    is_unknown = float(found.snr_db is None)
    filled = 0.0 if found.dip_db is None else max(0.0, DEEP_DB - found.dip_db) / 10
    # from 0, of a microphone, to 1, of a telephone: how little there is outside its band
    wide, narrow = NARROW_DB
    outside_db = wide if found.outside_db is None else found.outside_db
    narrowed = min(1.0, max(0.0, (wide - outside_db) / (wide - narrow)))
    return np.array([1.0, length, noise, is_unknown, clipping, filled, narrowed])


def values_of(found: SpeechMeasures) -> dict[str, float]:
    """The measure of each attribute that has one, on its axis."""
    return {name: float(on_axis(name, value)) for name, value in measured(found).items()}


def measured(found: SpeechMeasures) -> dict[str, float]:
    """The measure of each attribute that has one, in its own unit."""
    values = {name: getattr(found, field) for name, (field, *_) in MEASURES.items()}
    if (values["rate"] or 0.0) < LEAST_RATE:
        values["rate"] = None
    return {name: value for name, value in values.items() if value is not None}


def on_axis(name: str, values: float | Sequence[float]) -> Doubles:
    """Values of a measure, in octaves where its errors are a share of it."""
    found = np.asarray(values, np.float64)
    return np.log2(np.maximum(found, 1e-3)) if name in IN_OCTAVES else found


def arousal_sum(spreads: Mapping[str, Spread]) -> tuple[float, float]:
    """Mean and variance of the sum that arousal is."""
    mean = variance = 0.0
    for name, (weight, slope, _) in AROUSAL.items():
        places, widths, shares = spreads[name]
        middle = float(shares @ places)
        mean += weight * _standard(name, middle)
        own = float(shares @ (widths**2 * math.pi**2 / 3 + (places - middle) ** 2))
        variance += (weight * slope) ** 2 * own
    return mean, variance


def _logistic(at: Doubles, place: Doubles | float, width: Doubles | float) -> Doubles:
    return 0.5 + 0.5 * np.tanh((at - place) / (2 * np.asarray(width)))
