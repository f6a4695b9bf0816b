"""Long turns of recorded people. In: clips. Out: clips of one speaker joined.

The gaps hold the room's tone. This is for a folder without long turns of its own.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from bench.common import progress
from bench.people_clips import Clip, joined_name, truth
from pipelines.embedded.speak import SAMPLE_RATE, trim


def joined(clips: Sequence[Clip], seconds: int, num: int) -> list[Clip]:
    """`num` turns of 0.85 to 1 times `seconds`, each of one speaker's recordings.

    Fewer where no speaker has that much.
    """
    by_speaker = defaultdict(list)
    for clip in clips:
        by_speaker[clip.source, clip.speaker].append(clip)
    able = [
        own
        for own in by_speaker.values()
        if sum(len(c.samples) for c in own) > seconds * SAMPLE_RATE
    ]
    turns = []
    for index in progress(range(num if able else 0), f"joining turns of {seconds} s"):
        chance = random.Random(f"{seconds}/{index}")
        own = able[index % len(able)]
        if turn := join(chance.sample(own, len(own)), seconds, chance):
            turns.append(turn)
    return turns


def join(clips: Sequence[Clip], seconds: int, chance: random.Random) -> Clip | None:
    """One turn of `clips`, made as loud as the first; None where they do not fill the length."""
    parts, taken, total = [], [], 0
    for clip in clips:
        speech = trim(clip.samples, 40.0) * 10 ** (
            (clips[0].measures.loudness - clip.measures.loudness) / 20
        )
        gap = int(chance.uniform(0.15, 0.6) * SAMPLE_RATE)
        if total + len(speech) <= seconds * SAMPLE_RATE:
            parts += [speech, room_tone(speech, gap, chance)]
            taken.append(clip)
            total += len(speech) + gap
    samples = np.concatenate(parts[:-1]) if parts else np.zeros(0, np.float32)
    if len(samples) < 0.85 * seconds * SAMPLE_RATE:
        return None
    counts = [clip.syllables for clip in taken]
    syllables = None if None in counts else sum(counts)
    told = {name: getattr(clips[0], name) for name in ("speaker", "source", "language", "sex")}
    name = f"{taken[0].name} and {len(taken) - 1} more"
    return Clip(
        name,
        **told,
        syllables=syllables,
        samples=samples,
        measures=truth(samples, syllables),
        length=joined_name(seconds),
    )


def room_tone(samples: np.ndarray, num: int, chance: random.Random) -> np.ndarray:
    """`num` samples that sound as the quietest 100 ms of a recording do."""
    size = SAMPLE_RATE // 10
    if len(samples) < size:
        return np.zeros(num, np.float32)
    pieces = np.lib.stride_tricks.sliding_window_view(samples, size)[:: size // 5]
    quietest = pieces[(pieces**2).mean(1).argmin()]
    colour = np.abs(np.fft.rfft(quietest * np.hanning(size)))
    noise = np.random.default_rng(chance.randrange(2**31)).standard_normal(num + size)
    spectrum = np.fft.rfft(noise)
    spectrum *= np.interp(np.linspace(0, 1, len(spectrum)), np.linspace(0, 1, len(colour)), colour)
    shaped = np.fft.irfft(spectrum, num + size)[:num]
    return (shaped * quietest.std() / (shaped.std() + 1e-12)).astype(np.float32)
