"""Steps of loudness, tempo and melody: however they are cut, whatever the gain."""

import functools
import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speech import recording

from streamer.extras.coach import session
from streamer.extras.coach.network import FORM, NUM_BANDS, WEIGHTS, Steps, Voice
from streamer.extras.coach.options import Coach
from streamer.extras.coach.session import SessionCoach


@pytest.fixture
def spoken(monkeypatch):
    """Steps of a recording, and where somebody speaks, as a session makes them."""
    kept = []

    class Watched(Voice):
        def push(self, steps, speech):
            kept.append((steps, speech))
            return super().push(steps, speech)

    monkeypatch.setattr(session, "Voice", Watched)
    ear = SessionCoach(Coach())
    ear.push(np.tile(recording(2), 6))
    ear.work()
    steps, speech = zip(*kept, strict=True)
    return functools.reduce(Steps.then, steps), np.concatenate(speech)


def test_new_weights_have_a_new_form():
    """Raise FORM in network.py, then write both here: older baselines are refused."""
    digest = hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()[:12]
    assert (FORM, digest) == (5, "9abc903b96cf")


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.lists(st.integers(1, 79), max_size=8, unique=True))
def test_the_same_for_every_cut(seed, cuts):
    chance = np.random.default_rng(seed)
    steps = Steps.of(
        chance.uniform(-90, -10, (160, NUM_BANDS)).astype(np.float32),
        chance.uniform(-70, -10, 160).astype(np.float32),
        chance.choice([0, 0, 100, 140, 300], 160).astype(np.float32),
    )
    speech = chance.random(80) > 0.3
    whole, voice = Voice().push(steps, speech), Voice()
    ends = [0, *sorted(cuts), 80]
    slices = [slice(a, b) for a, b in itertools.pairwise(ends)]
    parts = [voice.push(steps.at(each), speech[each]) for each in slices]
    for name in ("loudness", "tempo", "melody", "trust"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        assert np.allclose(joined, getattr(whole, name), atol=1e-3)


def test_a_gain_moves_loudness_alone_and_tempo_is_in_octaves(spoken):
    """Every other step left out is twice as fast, each step twice is half as fast."""
    steps, speech = spoken
    usual = Voice().push(steps, speech)
    softer = {"bands": steps.bands - np.float32(12), "level_db": steps.level_db - np.float32(12)}
    soft = Voice().push(steps._replace(**softer), speech)
    assert np.allclose(soft.loudness, usual.loudness - 12, atol=1e-2)
    assert np.allclose(soft.tempo, usual.tempo, atol=1e-3)
    assert np.allclose(soft.melody, usual.melody, atol=1e-3)
    num = len(speech)
    for which, octaves in ((np.arange(0, num, 2), 1), (np.repeat(np.arange(num), 2), -1)):
        changed = Voice().push(steps.at(which), speech[which])
        assert 0.4 < octaves * (changed.tempo.mean() - usual.tempo.mean()) < 1.6
