"""Syllables in pieces equal those of the whole; NumPy's network equals the trained one."""

import numpy as np
import pytest
import torch

from pipelines.embedded.rate_net import Net, begun, padded
from streamer.core.measures import density
from streamer.core.measures.density import STEP_FRAMES, Density, learnt


def density_of(raw):
    found = Density()
    found.add(raw)
    return found.so_far()


def noise(num, seed=0):
    """[num, 128] log10 mel power of random bands."""
    return np.random.default_rng(seed).uniform(-6, 0, (num, 128)).astype(np.float32)


@pytest.mark.parametrize("seed", range(20))
def test_streamed_equals_whole_at_every_cut(seed):
    chance = np.random.default_rng(seed)
    raw = noise(int(chance.integers(1, 400)), seed)
    streamed = Density()
    num = 0
    while num < len(raw):
        piece = raw[num : num + int(chance.integers(1, 60))]
        streamed.add(piece)
        num += len(piece)
        assert np.array_equal(streamed.so_far(), density_of(raw[:num]))
    assert len(streamed.so_far()) == len(raw)


def test_numpy_counts_as_the_trained_network_does(monkeypatch, tmp_path):
    torch.manual_seed(1)
    net = Net().eval()
    for norm in net.norms:
        norm.running_mean.normal_(0, 0.1)
        norm.running_var.uniform_(0.5, 2)
    mixture = np.array([0.4, 0.6])
    np.savez(tmp_path / "density.npz", **net.arrays(), mixture=mixture, error=np.ones(4))
    monkeypatch.setattr(density, "WEIGHTS", tmp_path / "density.npz")
    learnt.cache_clear()
    try:
        for num in (5, 100, 333):
            raw = noise(num)
            steps, here, _ = padded([(density.in_bands(raw), np.ones(num, bool))])
            with torch.no_grad():
                said, found = net(steps, here)
            wanted = mixture[0] * begun(said)[0].numpy() + mixture[1] * found[0].numpy()
            frames = np.repeat(wanted / STEP_FRAMES, STEP_FRAMES)[:num]
            assert density_of(raw) == pytest.approx(frames, abs=1e-4)
    finally:
        learnt.cache_clear()
