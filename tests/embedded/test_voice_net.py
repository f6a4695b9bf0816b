"""The network of the coach while it learns is the one that ships; it learns the change alone."""

import numpy as np
import pytest
import torch

from pipelines.embedded import voice_net
from pipelines.embedded.voice_net import Net, centred, fitted, heard, loss_of, unlikeliness
from pipelines.embedded.voice_versions import PLAIN, Version
from streamer.core.coach.voice import NUM_BANDS, NUM_INPUTS, REACH, SHARED, STEP_FRAMES, Steps, told


def version(chance, octaves=(0.0, 0.0)):
    """20 s of sounds that change the sooner the faster they are said."""
    num = 1_000
    every = 10 / 2 ** octaves[0]
    which = (np.arange(num) / every).astype(int)
    sounds = chance.normal(-50, 8, (which[-1] + 1, NUM_BANDS))
    levels = chance.normal(-25, 6, which[-1] + 1)
    bands = (sounds + levels[:, None])[which].repeat(STEP_FRAMES, 0).astype(np.float32)
    level = levels[which].repeat(STEP_FRAMES).astype(np.float32)
    moves = 2 ** octaves[1] * np.sin(np.arange(num) / 20)
    f0 = (150 * 2 ** (moves / 12)).repeat(STEP_FRAMES).astype(np.float32)
    return Version(Steps.of(bands, level, f0), np.ones(num, bool), octaves)


def reading(seed):
    changes = {PLAIN: (0.0, 0.0), "fast": (1.0, 0.0), "slow": (-1.0, 0.0), "flat": (0.0, -2.0)}
    return {n: version(np.random.default_rng(seed), octaves) for n, octaves in changes.items()}


def test_the_weights_say_what_the_network_says():
    torch.manual_seed(0)
    net = Net()
    for norm in net.norms:
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
    seen = np.random.default_rng(0).normal(size=(REACH + 30, NUM_INPUTS)).astype(np.float32)
    with torch.no_grad():
        wanted = net.eval()(torch.from_numpy(seen)[None])[0].numpy()
    assert np.allclose(told(seen, net.weights()), wanted, atol=1e-4)


def test_a_second_that_moves_with_the_change_is_likelier():
    chance, log_sure = torch.Generator().manual_seed(0), torch.tensor(3.0)
    off, as_one = 0.1 * torch.randn(1_000, generator=chance), torch.ones(1_000)
    assert unlikeliness(off, log_sure, as_one) < unlikeliness(off + 1.0, log_sure, as_one)
    assert unlikeliness(off, log_sure, as_one) < unlikeliness(off, torch.tensor(-3.0), as_one)


def test_steps_that_lie_far_off_are_likelier_where_they_count_little():
    off = torch.where(torch.arange(1_000) % 100 < 50, 0.0, 1.0)
    log_sure, as_one = torch.tensor(3.0), torch.ones(1_000)
    little = torch.where(off > 0, 0.05, 1.0)
    assert unlikeliness(off, log_sure, little) < unlikeliness(off, log_sure, as_one)


def test_it_learns_and_its_zero_is_the_mean(monkeypatch):
    monkeypatch.setattr(voice_net, "EPOCHS", 6)
    learnt = [reading(seed) for seed in range(6)]
    chance = np.random.default_rng
    nets = fitted(learnt)
    net = next(nets)
    with torch.no_grad():
        first = float(loss_of(net, learnt, chance(0)))
    *_, net = nets
    with torch.no_grad():
        assert float(loss_of(net, learnt, chance(0))) < first
    weights = centred(net, learnt)
    usual = [heard(weights, each[PLAIN]) for each in learnt]
    assert abs(np.mean([each.tempo.mean() for each in usual])) < 1e-3
    assert abs(np.mean([each.melody.mean() for each in usual])) < 1e-3
    levels = [each[PLAIN].steps.level_db.mean() for each in learnt]
    assert abs(np.mean([each.loudness.mean() for each in usual]) - np.mean(levels)) < 1e-2
    trust = np.concatenate([each.trust for each in usual])
    assert trust.min() > 0
    assert trust.max() < 1
    precision = trust / (1 - trust) / SHARED
    assert precision.mean() == pytest.approx(1, abs=1e-3)
