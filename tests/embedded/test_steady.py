"""Trained to say the same through a telephone: what is counted is nothing where nothing differs."""

import argparse
import random

import numpy as np
import pytest
import speech
import torch

from pipelines.embedded import steady
from pipelines.embedded.codecs import telephone_call
from pipelines.embedded.evaluate import open_model
from pipelines.embedded.joint import Prompted
from pipelines.embedded.speak import SAMPLE_RATE
from streamer.model.thinker import EMBEDDED


@pytest.fixture(scope="module")
def prompted():
    return Prompted()


@pytest.fixture(scope="module")
def turns(prompted):
    samples = [speech.recording(index)[: 3 * SAMPLE_RATE] for index in range(3)]
    edge = open_model(str(EMBEDDED / "edge"))
    return steady.heard(samples, edge, prompted, random.Random(0))


def test_a_telephone_keeps_the_length_and_fills_the_upper_half():
    samples = speech.recording(0)
    found = telephone_call(samples)
    assert len(found) == pytest.approx(len(samples), abs=200)
    power = np.abs(np.fft.rfft(found)) ** 2
    assert power[len(power) * 5 // 8 :].sum() > 1e-4 * power.sum()


def test_what_is_changed_is_of_about_the_same_length():
    samples = speech.recording(0)
    for seed in range(12):
        found = steady.changed(samples, random.Random(seed))
        assert abs(len(found) - len(samples)) < 200
        assert found.dtype == np.float32


def test_the_same_sound_is_off_by_nothing(prompted, turns):
    same = [steady.Turn(t.whole, t.whole, t.whole, t.ids) for t in turns]
    edge = open_model(str(EMBEDDED / "edge"))
    with torch.no_grad():
        off = steady.nats(edge, edge, prompted, same, random.Random(0))
    assert off.shape == (2 * len(turns),)
    assert float(off.abs().max()) < 1e-3
    assert steady.levels_changed(edge, prompted, same) == 0


def test_every_turn_comes_once_before_any_comes_again(turns):
    drawn = steady.batches(turns, 1, random.Random(0))
    first = [next(drawn)[0] for _ in turns]
    assert {id(t) for t in first} == {id(t) for t in turns}


def test_steps_bring_the_telephone_nearer(prompted, turns, tmp_path):
    edge, shipped = (open_model(str(EMBEDDED / "edge")) for _ in range(2))
    options = argparse.Namespace(lr=2e-4, batch=3, steps=8, out=tmp_path)
    with torch.no_grad():
        before = steady.nats(edge, shipped, prompted, turns, random.Random(0))[: len(turns)]
    steady.learned(edge, shipped, prompted, turns, options, random.Random(0))
    with torch.no_grad():
        after = steady.nats(edge, shipped, prompted, turns, random.Random(0))[: len(turns)]
    assert float(after.sum()) < float(before.sum())
    assert (tmp_path / "last.pt").exists()
