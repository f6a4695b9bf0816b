"""One recording twice, with a single thing changed. In: clips. Out: pairs and their truth.

The two lie to both sides of the bound of levels that is nearest to the clip: so it is moved least,
and its levels must differ. A pair whose labels do not (the labels' own measures decide) is none.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import uniform_filter1d

from bench.common import progress
from bench.people_clips import Clip, sound_measures, truth
from bench.people_joined import room_tone
from pipelines.embedded.contrast import reshaped
from pipelines.embedded.heldout import tilted
from pipelines.embedded.labels import BOUNDS, Measures
from pipelines.embedded.speak import SAMPLE_RATE

SIZES = ("moderate", "large")
# How far either one lies from the bound. rate, pitch, variation: a factor; loudness, timbre: dB.
STEPS = {
    "rate": (1.25, 1.5),
    "pitch": (1.2, 1.35),
    "variation": (1.4, 1.8),
    "loudness": (4.0, 7.0),
    "timbre": (3.0, 5.0),
}
FACTORS = ("rate", "pitch", "variation")
PAUSES = 0.06  # of the span: so far over a bound is a share of pauses that is put in
APART_S = 0.4  # pauses lie so far from each other,
EDGE_S = 0.3  # and so far from the ends
GAP_S = 0.5  # each is about so long
OWN_SPREAD = 2.4  # contrast.py counts the spread of a contour in these semitones
ATTRIBUTES = (*STEPS, "pauses")


@dataclass(frozen=True)
class Pair:
    """low, high: samples [n] at 16 kHz; labels: the true levels of each, those that are known."""

    attribute: str
    size: str
    low: np.ndarray
    high: np.ndarray
    labels: tuple[dict[str, int], dict[str, int]]


def pairs_of(clips: Sequence[Clip]) -> tuple[list[Pair], int]:
    """All pairs of all clips, and how many could not be made."""
    wanted = list(itertools.product(clips, ATTRIBUTES, SIZES))
    made = [pair for each in progress(wanted, "making pairs") if (pair := make(*each)) is not None]
    return made, len(wanted) - len(made)


def make(clip: Clip, attribute: str, size: str) -> Pair | None:
    chance = random.Random(f"{clip.name}/{attribute}/{size}")
    try:
        sounds = [
            variant(clip, attribute, value, chance)
            for value in targets(clip, attribute, SIZES.index(size))
        ]
        found = [truth(sound, clip.syllables) for sound in sounds]
    except (ValueError, IndexError, ArithmeticError):
        return None
    labels = [levels_of(clip, measures) for measures in found]
    if len(sounds) < 2 or (attribute in labels[0] and labels[0][attribute] >= labels[1][attribute]):
        return None
    return Pair(attribute, size, *sounds, (labels[0], labels[1]))


def levels_of(clip: Clip, measures: Measures) -> dict[str, int]:
    return {name: level for name, level in measures.levels().items() if name in clip.levels}


def targets(clip: Clip, attribute: str, size: int) -> Iterator[float]:
    """The low and the high value of the attribute; nothing where the clip cannot be moved so."""
    own = getattr(clip.measures, attribute)
    if attribute == "pauses":
        yield from pause_targets(own, size)
        return
    step = STEPS[attribute][size]
    bounds = BOUNDS[attribute]
    if attribute == "loudness":  # the louder one must not clip
        bounds = [
            b for b in bounds if np.abs(clip.samples).max() * 10 ** ((b + step - own) / 20) < 1
        ]
    if (
        attribute not in clip.levels
    ):  # the rate of an unknown text: any two that are so far apart differ in level
        bounds = [own]
    if attribute in FACTORS:
        middle = min(bounds, key=lambda b: abs(np.log(b / own)))
        yield from (middle / step, middle * step)
    elif bounds:
        middle = min(bounds, key=lambda b: abs(b - own))
        yield from (middle - step, middle + step)


def pause_targets(own: float, size: int) -> Iterator[float]:
    """The clip's own share of pauses, and one over the next bound; over the last one if large."""
    above = [bound for bound in BOUNDS["pauses"] if bound - own >= 0.02]
    if above:
        yield from (own, above[-size] + PAUSES)


def variant(clip: Clip, attribute: str, value: float, chance: random.Random) -> np.ndarray:
    """The clip with `attribute` at `value`, else as it was. Raises ValueError without a voice."""
    own = clip.measures
    shape = {"rate": own.rate, "pitch": own.pitch, "variation": own.variation}
    if attribute in shape:
        wanted = shape | {attribute: value}
        stretch = float(np.clip(own.rate / wanted["rate"], 0.4, 2.5))
        sound = reshaped(clip.samples, stretch, wanted["pitch"], wanted["variation"] / OWN_SPREAD)
    elif attribute == "pauses":
        span_s = len(clip.samples) / SAMPLE_RATE
        sound = paused(clip.samples, (value - own.pauses) * span_s / (1 - value), chance)
    elif attribute == "timbre":
        sound = coloured(clip, value)
    else:
        sound = clip.samples
    wanted_db = value if attribute == "loudness" else own.loudness
    gain = 10 ** ((wanted_db - sound_measures(sound).loudness) / 20)
    return np.clip(sound * gain, -1, 1).astype(np.float32)


def coloured(clip: Clip, timbre: float) -> np.ndarray:
    """The clip under a spectral slope that brings its timbre to `timbre` dB."""
    slope, sound = 0.0, clip.samples
    for _ in range(3):
        slope += (timbre - sound_measures(sound).timbre) / 2.2
        sound = tilted(clip.samples, slope)
    return sound


def paused(samples: np.ndarray, seconds: float, chance: random.Random) -> np.ndarray:
    """With pauses of `seconds` altogether where it is quietest, filled with the room's tone."""
    if seconds <= 0:
        return samples
    places = quiet_places(samples, max(1, round(seconds / GAP_S)))
    if not places:
        raise ValueError("too short for a pause")
    gap = int(max(0.35, seconds / len(places)) * SAMPLE_RATE)
    fade = np.linspace(1, 0, SAMPLE_RATE // 200, dtype=np.float32)
    parts = []
    for first, last in itertools.pairwise((0, *places, len(samples))):
        part = samples[first:last].copy()
        if first:
            part[: len(fade)] *= fade[::-1]
        if last < len(samples):
            part[-len(fade) :] *= fade
            parts += [part, room_tone(samples, gap, chance)]
        else:
            parts.append(part)
    return np.concatenate(parts)


def quiet_places(samples: np.ndarray, num: int) -> list[int]:
    """Places of up to `num` samples, the quietest that lie apart from each other and the ends."""
    power = uniform_filter1d(samples.astype(np.float64) ** 2, 480)[::160]
    edge, apart = int(EDGE_S * 100), int(APART_S * 100)
    found: list[int] = []
    for at in edge + power[edge : len(power) - edge].argsort():
        if len(found) < num and all(abs(at - other) >= apart for other in found):
            found.append(int(at))
    return sorted(160 * at for at in found)
