"""What the coach's network learns from. In: readings, each as it is and changed. Out: pieces of
them, in rooms and with gains that chance draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from streamer.core.coach.voice import NUM_BANDS, STEPS_PER_S, Steps

NUM_CHANGED = 3  # of each, beside it as it is
CROP = 20 * STEPS_PER_S  # steps
STEADY_SHARE = 0.3  # of versions have no gain; in others it jumps
JUMP_STEPS, JUMP_DB = 2 * STEPS_PER_S, 8.0
PLAIN = "as it is"


@dataclass(frozen=True)
class Version:
    """A reading, changed. speech [n]: in which steps somebody speaks; octaves of tempo and of melody
    that it was changed by, and dB, step by step [n]; None: by none."""

    steps: Steps
    speech: np.ndarray
    octaves: tuple[float, float] = (0.0, 0.0)
    gain_db: np.ndarray | None = None


Reading = Mapping[str, Version]  # with PLAIN among them


def drawn(reading: Reading, chance: np.random.Generator) -> list[Version]:
    """The reading as it is and some of its changes: a piece of each, all in one room."""
    others = [name for name in reading if name != PLAIN]
    names = [PLAIN, *chance.choice(others, NUM_CHANGED, replace=False)]
    room = Room(reading[PLAIN], chance)
    found = []
    for name in names:
        version = cropped(reading[name], chance)
        # The voice alone, or whatever the microphone hears.
        is_voice = chance.random() < 0.5
        version = louder_and_softer(version, chance) if is_voice else version
        version = room.of(version)
        found.append(version if is_voice else louder_and_softer(version, chance))
    return found


def louder_and_softer(version: Version, chance: np.random.Generator) -> Version:
    """With a gain that jumps now and then: else what falls at once would be taken for a sentence's
    end, and half of it explained away."""
    if chance.random() < STEADY_SHARE:
        return version
    num = len(version.speech)
    jumps = np.cumsum(chance.random(num) < 1 / JUMP_STEPS)
    gain_db = chance.normal(0, JUMP_DB, int(jumps[-1]) + 1).astype(np.float32)[jumps]
    s = version.steps
    steps = replace(s, bands=s.bands + gain_db[:, np.newaxis], level_db=s.level_db + gain_db)
    return replace(version, steps=steps, gain_db=gain_db)


def cropped(version: Version, chance: np.random.Generator) -> Version:
    num = len(version.speech)
    first = int(chance.integers(0, max(1, num - CROP + 1)))
    kept = slice(first, first + CROP)
    return replace(version, steps=version.steps.at(kept), speech=version.speech[kept])


class Room:
    """A microphone's colour and a noise, drawn once for all versions of a reading."""

    def __init__(self, plain: Version, chance: np.random.Generator) -> None:
        spoken = plain.steps.level_db[plain.speech]
        self.noise_db = float(np.percentile(spoken, 90) - chance.uniform(15, 60))
        place = np.linspace(-1, 1, NUM_BANDS)
        wave = np.sin(chance.uniform(1, 6) * place + chance.uniform(0, 6))
        self.colour = (chance.normal(0, 3) * place + chance.normal(0, 2) * wave).astype(np.float32)
        self.noise = (chance.normal(0, 4) * place).astype(np.float32)
        over = plain.steps.bands - plain.steps.level_db[:, np.newaxis]
        self.noise += np.float32(self.noise_db + np.median(over))

    def of(self, version: Version) -> Version:
        s = version.steps
        bands = louder(s.bands + self.colour, self.noise)
        steps = replace(s, bands=bands, level_db=louder(s.level_db, self.noise_db))
        return replace(version, steps=steps)


def louder(level_db: np.ndarray, noise_db: np.ndarray | float) -> np.ndarray:
    """With a noise of such a level beside it."""
    powers = 10 ** (level_db / 10) + 10 ** (np.asarray(noise_db, np.float32) / 10)
    return (10 * np.log10(powers)).astype(np.float32)
