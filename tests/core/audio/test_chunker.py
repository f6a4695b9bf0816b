"""The chunker: streamed == whole for every cut, against soxr as the oracle, and its refusals."""

import itertools

import numpy as np
import pytest
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.core.audio.chunker import BadAudio, Chunker
from streamer.core.audio.pcm import MAX_MAGNITUDE
from streamer.core.audio.telephone import TELEPHONE_HZ, HighBand

RATES = [1_000, 8_000, 11_025, 16_000, 22_050, 24_000, 44_100, 48_000, 96_000, 384_000]


def noise(n, seed=0, channels=1):
    x = np.random.default_rng(seed).uniform(-0.9, 0.9, (n, channels)).astype(np.float32)
    return x[:, 0] if channels == 1 else x


def pieces(x, cuts):
    edges = [0, *sorted(min(c, len(x)) for c in cuts), len(x)]
    return [x[a:b] for a, b in itertools.pairwise(edges)]


def hear(chunker, parts):
    take = chunker.push_pcm16 if isinstance(parts[0], bytes) else chunker.push
    return np.concatenate([*[take(p) for p in parts], chunker.finish()])


@settings(max_examples=60, deadline=None)
@given(
    rate=st.sampled_from(RATES),
    channels=st.integers(1, 9),
    length=st.integers(0, 9_000),
    cuts=st.lists(st.integers(0, 9_000), max_size=12),
)
def test_streamed_frames_equal_whole(rate, channels, length, cuts):
    x = noise(length, length, channels)
    whole = hear(Chunker(rate, channels), [x])
    assert np.array_equal(hear(Chunker(rate, channels), pieces(x, cuts)), whole)
    strided = hear(Chunker(rate, channels), [np.asfortranarray(p) for p in pieces(x, cuts)])
    assert np.array_equal(strided, whole)


@pytest.mark.parametrize("rate", RATES)
def test_equals_soxr_offline(rate):
    x = noise(rate // 2)
    expected = x if rate == 16_000 else soxr.resample(x, rate, 16_000, quality="MQ")
    heard = hear(Chunker(rate), pieces(x, range(0, len(x), 997)))
    assert abs(len(heard) - len(x) * 16_000 / rate) <= 1
    if rate == TELEPHONE_HZ:  # it has a guess of what was cut off beside it: test_pcm.py
        high_band = HighBand()
        expected = np.concatenate([high_band.push(expected), high_band.finish()])
    np.testing.assert_allclose(heard, expected, atol=1e-6)


@pytest.mark.parametrize("rate", [24_000, 44_100, 48_000, 96_000])
def test_added_delay_is_at_most_50_ms(rate):
    chunker, heard = Chunker(rate), 0
    for i in range(100):
        heard += len(chunker.push(np.zeros(rate // 100, np.float32)))
        assert (i + 1) / 100 - heard / 16_000 <= 0.05 + 1e-9


def test_half_a_sample_waits_and_at_the_end_is_dropped():
    chunker = Chunker(16_000, 2)
    frames = b"\x00\x40\x00\x40\x00\xc0\x00\xc0"
    assert len(chunker.push_pcm16(frames[:3])) == 0
    assert len(chunker.push_pcm16(bytearray(frames[3:] + b"\x01"))) == 0  # under a mixer's block
    assert chunker.finish().tolist() == [0.5, -0.5]
    # The lost byte does not shift what follows.
    chunker.push_pcm16(frames)
    assert chunker.finish().tolist() == [0.5, -0.5]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2 * MAX_MAGNITUDE])
@pytest.mark.parametrize("cuts", [[], [100, 8_000], range(0, 30_000, 7)])
def test_bad_samples_are_refused_with_their_place(value, cuts):
    x = noise(30_000, channels=2)
    x[24_000, 1] = value
    chunker = Chunker(48_000, 2)
    with pytest.raises(BadAudio, match=r"bad audio at 0\.500 s: .* channel 1") as caught:
        hear(chunker, pieces(x, cuts))
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)


def test_a_refused_push_changes_nothing():
    chunker, x = Chunker(24_000), noise(4000)
    first = chunker.push(x[:2000])
    with pytest.raises(BadAudio):
        chunker.push(np.full(9, np.nan))
    rest = [chunker.push(x[2000:]), chunker.finish()]
    assert np.array_equal(np.concatenate([first, *rest]), hear(Chunker(24_000), [x]))
