"""Curves of frames that were made by hand: pauses, the rate at a time, steps that double."""

import numpy as np
import pytest

from streamer.core.measures.curves import Curves


def curves(num=1_000, **changed):
    """Ten seconds of speech with a syllable each 250 ms."""
    fields = {
        "f0_hz": np.full(num, 200, np.float32),
        "power": np.full(num, 0.01, np.float32),
        "speech": np.ones(num, bool),
        "syllables": 1.0 * (np.arange(num) % 25 == 12),
    }
    return Curves(0.01, **(fields | changed))


def test_pauses_lie_between_speech():
    speech = np.ones(1_000, bool)
    speech[:50] = speech[300:318] = speech[400:417] = speech[600:700] = speech[980:] = False
    assert curves(speech=speech).pauses_s == [(3.0, 3.18), (6.0, 7.0)]
    assert curves(speech=np.zeros(1_000, bool)).pauses_s == []
    assert curves().pauses_s == []


def test_the_rate_leaves_pauses_out():
    speech = np.ones(1_000, bool)
    speech[400:700] = False
    syllables = curves().syllables * speech
    rates = dict(curves(speech=speech, syllables=syllables).rates())
    assert list(rates) == [i / 2 for i in range(21)]
    assert rates[2.0] == pytest.approx(4)
    assert rates[3.5] == pytest.approx(4, rel=0.15)  # 1.5 s are speech
    assert rates[5.5] is None


def test_a_step_doubles_where_points_are_too_many():
    f0 = np.zeros(1_000, np.float32)
    f0[0], f0[2], f0[3] = 100, 150, 250
    power = np.full(1_000, 0.01, np.float32)
    power[:2] = 0.03, 0.01
    found = curves(f0_hz=f0, power=power).thinned(600)
    assert (found.step_s, len(found)) == (0.02, 500)
    assert found.f0_hz[:3].tolist() == [100, 200, 0]
    assert found.power[0] == pytest.approx(0.02)
    assert found.syllables.sum() == pytest.approx(curves().syllables.sum())
    assert curves().thinned(1_000).step_s == 0.01
    assert len(Curves.joined([curves()] * 3)) == 3_000


def test_a_pause_is_the_same_in_longer_steps():
    speech = np.ones(1_000, bool)
    speech[600:700] = False
    assert curves(speech=speech).thinned(300).pauses_s == [pytest.approx((6.0, 7.0))]
