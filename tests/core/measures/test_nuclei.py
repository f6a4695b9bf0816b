"""An envelope that comes in pieces has the peaks of the whole, at every moment."""

import numpy as np
import pytest

from streamer.core.measures.nuclei import Envelope, nuclei


def envelope_of(loudness):
    envelope = Envelope()
    envelope.add(loudness)
    return envelope.so_far()


@pytest.mark.parametrize("seed", range(20))
def test_streamed_equals_whole_at_every_cut(seed):
    chance = np.random.default_rng(seed)
    loudness = chance.uniform(0, 1, 400).astype(np.float32)
    envelope = Envelope()
    num = 0
    while num < len(loudness):
        piece = loudness[num : num + int(chance.integers(1, 30))]
        envelope.add(piece)
        num += len(piece)
        for found, whole in zip(envelope.so_far(), envelope_of(loudness[:num]), strict=True):
            assert np.array_equal(found, whole)
    assert len(envelope.so_far()[2]) > 20


def test_nothing_has_no_peak():
    level_db, _, peaks = envelope_of(np.zeros(0, np.float32))
    assert (len(level_db), len(peaks)) == (0, 0)


def test_a_nucleus_is_voiced_spoken_and_not_far_under_the_loudest():
    loudness = np.full(100, 1e-3, np.float32)
    loudness[[10, 30, 50, 70]] = 1
    loudness[90] = 0.05  # 43 dB softer
    level_db, _, peaks = envelope_of(loudness)
    assert peaks.tolist() == [10, 30, 50, 70, 90]
    voiced = np.ones(100, bool)
    voiced[28:33] = False
    spoken = np.arange(100) != 200
    assert nuclei(level_db, peaks, voiced, spoken).tolist() == [10, 50, 70]
    voiced[29] = True  # beside the peak
    assert nuclei(level_db, peaks, voiced, spoken).tolist() == [10, 30, 50, 70]
    assert nuclei(level_db, peaks, voiced, np.zeros(100, bool)).tolist() == []
