"""What frames say of tempo and melody: however they are cut, whatever the gain; more where more
moves."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.core.coach.voice import MAX_GLIDE, Change, glides


def spectra(seed, num=60):
    return np.random.default_rng(seed).uniform(-4, -1, (num, 128)).astype(np.float32)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**31), st.lists(st.integers(1, 59), max_size=8, unique=True))
def test_change_is_the_same_for_every_cut(seed, cuts):
    raw = spectra(seed)
    change = Change()
    parts = [change.push(part) for part in np.split(raw, sorted(cuts))]
    assert np.concatenate(parts).tolist() == Change().push(raw).tolist()


def test_change_knows_no_gain_and_grows_with_tempo():
    steps = np.repeat(spectra(1, 20), 10, 0)  # a new sound each 100 ms, and each 50 ms
    usual, quick = Change().push(steps), Change().push(steps[::2])
    assert np.allclose(Change().push(steps + 2), usual, rtol=1e-4)
    assert quick.mean() > 1.5 * usual.mean()
    assert Change().push(steps[:9]).tolist() == [0.0] * 9
    assert 0 <= usual.min() <= usual.max() <= 2


def test_glides_are_of_what_is_voiced_at_both_ends():
    f0 = np.array([100, 0, 100, 100, 100 * 2 ** (1 / 12), 100, 0, 400], np.float32)
    speech = np.ones(8, bool)
    assert np.allclose(glides(f0, speech), [1.0, MAX_GLIDE**0.5], atol=1e-3)
    speech[0] = False
    assert np.allclose(glides(f0, speech), [MAX_GLIDE**0.5])
    assert len(glides(f0[:4], speech[:4])) == 0
