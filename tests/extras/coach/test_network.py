"""Steps of loudness, tempo and melody: however they are cut, whatever the gain."""

import hashlib
import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.extras.coach.network import FORM, NUM_BANDS, WEIGHTS, Steps, Voice


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
