"""Syllables that come in pieces are those of the whole, at every moment; the network is the one
that was learnt, and its numbers are plausible where one can count."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from speech import recording

from pipelines.embedded.density import Net, Told, fitted, rates
from pipelines.embedded.mel import raw_log_mel
from streamer.core.measures import density
from streamer.core.measures.density import SEEN, SPANS, Density, learnt
from streamer.core.measures.levels import LEAST_RATE


def density_of(raw):
    found = Density()
    found.add(raw)
    return found.so_far()


def noise(num, seed=0):
    """[num, 128] log10 mel power, of nothing in particular."""
    return np.random.default_rng(seed).uniform(-6, 0, (num, 128)).astype(np.float32)


def beating(times_per_s, seconds=4):
    """A vowel that comes and goes so often, as log-mel: harmonics of 120 Hz below 3 kHz."""
    time_s = np.arange(seconds * 16_000) / 16_000
    voice = sum(np.sin(2 * np.pi * 120 * n * time_s) / n for n in range(1, 25))
    loud = np.clip(0.5 - 0.6 * np.cos(2 * np.pi * times_per_s * time_s), 0.003, 1)
    hiss = np.random.default_rng(0).normal(0, 1e-4, len(time_s))
    return raw_log_mel((0.1 * loud * voice + hiss).astype(np.float32))


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


def test_what_is_far_behind_is_final():
    raw = noise(400)
    changed = np.concatenate([raw[:300], noise(100, 1)])
    same = density_of(raw) == density_of(changed)
    assert same[: 300 - 2 * SEEN].all()
    assert not same[290:].any()


def test_what_is_no_speech_has_fewer_syllables_than_any_speech():
    tone = 0.1 * np.sin(2 * np.pi * 200 / 16_000 * np.arange(48_000)).astype(np.float32)
    assert len(density_of(np.zeros((0, 128), np.float32))) == 0
    for raw in (np.full((300, 128), -10.0, np.float32), raw_log_mel(tone)):
        assert density_of(raw).sum() / (len(raw) / 100) < LEAST_RATE


def test_a_gain_of_20_db_moves_the_rate_by_less_than_3_percent():
    raw = raw_log_mel(recording(0))
    assert density_of(raw - 2).sum() == pytest.approx(density_of(raw).sum(), rel=0.03)


@pytest.mark.parametrize("gain", [-1.5, 1.0])
def test_over_the_floor_neither_gain_nor_a_microphone_s_colour_matters(gain):
    raw = raw_log_mel(recording(0)).clip(-5)
    colour = np.linspace(-0.5, 0.5, 128, dtype=np.float32)
    assert density_of(raw + gain + colour) == pytest.approx(density_of(raw), abs=1e-4)


def test_what_beats_faster_has_more_syllables():
    rates = [float(density_of(beating(often))[20:-20].mean()) * 100 for often in (2, 4, 6)]
    assert rates == sorted(rates)
    assert rates[1] == pytest.approx(4, abs=1)


def test_what_ships_needs_no_torch():
    code = """import sys
from streamer.core.measures.levels import LEAST_RATE
from streamer.core.measures.density import learnt
print(sum(one.size for each in learnt() for one in each), "torch" in sys.modules)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    num, has_torch = done.stdout.split()
    assert 1_000 < int(num) < 20_000
    assert has_torch == "False"
    assert [
        len(kernel) % num for kernel, (num, _) in zip(learnt().kernels, SPANS, strict=True)
    ] == [0] * 3


def test_it_says_what_the_network_said_that_was_learnt(monkeypatch):
    """Each of 64 recordings of noise has its rate in a band; two epochs do not learn it, but move
    every weight."""
    monkeypatch.setattr("pipelines.embedded.density.EPOCHS", 2)
    told = [Told.of(noise(n, n), np.ones(n, bool), n / 100, n / 50) for n in range(100, 164)]
    *_, net = fitted(told)
    assert isinstance(net, Net)
    weights = net.weights()
    monkeypatch.setattr(density, "learnt", lambda: weights)
    assert all(torch.isfinite(one).all() for one in net.parameters())
    raw = noise(333)
    one = Told.of(raw, np.ones(333, bool), 3.33, 5.0)
    assert density_of(raw).sum() / 3.33 == pytest.approx(rates(net, [one])[0], rel=1e-4)
