"""Our engine against transformers' modules over whole turns: the same ids, from 3 to 60 s of
speech."""

import functools

import numpy as np
import pytest

from bench.arms import models_of, run
from streamer.audio.file import open_audio
from streamer.recording import chunks_of


@functools.cache
def arm(engine, mode):
    return models_of(mode=mode, engine=engine, max_new_tokens=48)


@functools.cache
def speech(samples):
    """All bundled recordings one after the other, 16 kHz mono."""
    parts = []
    for path in samples:
        with open_audio(path) as audio:
            parts += list(chunks_of(audio))
    return np.concatenate(parts)


def clip(samples, seconds, seed):
    """`seconds` of them from a place that depends on `seed`, at a loudness that does too."""
    whole, chance = speech(tuple(samples)), np.random.default_rng(seed)
    whole = np.roll(whole, -int(chance.integers(len(whole))))
    return np.resize(whole, int(16_000 * seconds)) * np.float32(chance.uniform(0.2, 1.0))


def ids_of(engine, mode, sound):
    found = run(arm(engine, mode), sound)
    return found.ids, found.stop_reason


@pytest.mark.parametrize("mode", ["exact", "edge"])
@pytest.mark.parametrize("seconds", [3, 30])
def test_both_engines_say_the_same(samples, mode, seconds):
    sound = clip(samples, seconds, 1)
    fast = ids_of("fast", mode, sound)
    assert fast == ids_of("stock", mode, sound)
    assert len(fast[0]) >= 16


@pytest.mark.parametrize(
    ("seconds", "seeds"),
    [
        (3, range(3)),
        (10, range(3)),
        (30, range(3)),
        (60, range(1)),  # the parts of a turn as long as they get
        pytest.param(60, range(1, 3), marks=pytest.mark.long),
    ],
)
def test_exact_is_cloud_to_the_last_id(samples, seconds, seeds):
    """One numeric class: no two logits are too close for that."""
    for seed in seeds:
        sound = clip(samples, seconds, seed)
        assert ids_of("fast", "exact", sound) == ids_of("fast", "cloud", sound)
