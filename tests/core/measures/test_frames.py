"""Frames: what is plain to see."""

import numpy as np
import pytest

from streamer.core.measures.frames import pause_frames, percentiles


def test_a_pause_is_180_ms_or_more():
    silent = np.array([1] * 17 + [0] * 5 + [1] * 18 + [0] + [1] * 40, bool)
    assert pause_frames(silent).tolist() == [18, 40]
    assert pause_frames(np.zeros(9, bool)).tolist() == []


@pytest.mark.parametrize("seed", range(30))
def test_percentiles_are_numpy_s(seed):
    chance = np.random.default_rng(seed)
    values = chance.normal(size=chance.integers(1, 300)).astype(np.float32)
    found = percentiles(np.sort(values), 5, 95, 50)
    assert found == pytest.approx(np.percentile(values.astype(float), [5, 95, 50]), abs=1e-9)
