"""Numbers between channels, on talk whose times are known."""

import numpy as np
import pytest

from streamer.core.conversation import _of


def of(*channels, seconds=30):
    """Each channel: the (begin, end) of its speech in s."""
    flags = np.zeros((len(channels), 100 * seconds), bool)
    for row, spans in zip(flags, channels, strict=True):
        for begin, end in spans:
            row[round(100 * begin) : round(100 * end)] = True
    return _of(flags)


def test_two_take_turns():
    found = of([(1, 5), (8, 10)], [(5.5, 7.5), (14, 16)])
    assert found.talk_s == pytest.approx((6, 4))
    assert found.talk_share == pytest.approx((0.6, 0.4))
    assert (found.turns, found.interruptions) == ((2, 2), (0, 0))
    assert found.gap_median_s == pytest.approx(0.5)
    assert (found.overlap_s, found.overlap_share) == (0, 0)
    assert found.dead_air_s == pytest.approx(4)
    assert found.dead_air_count == 1


def test_who_takes_the_floor_interrupts():
    found = of([(0, 5)], [(4, 8)])
    assert found.interruptions == (0, 1)
    assert found.overlap_s == pytest.approx(1)
    assert found.overlap_share == pytest.approx(1 / 8)
    assert found.gap_median_s is None


def test_a_yes_during_talk_is_no_turn():
    found = of([(0, 10)], [(4, 4.5)])
    assert (found.turns, found.interruptions) == ((1, 0), (0, 0))


def test_a_short_pause_ends_no_talk():
    found = of([(0, 2), (2.5, 4)], [(2.1, 2.4), (6, 8)])
    assert found.turns == (1, 1)
    assert found.gap_median_s == pytest.approx(2)


def test_silence_at_the_ends_is_no_dead_air():
    found = of([(10, 12)], [(12.5, 14)])
    assert (found.dead_air_s, found.dead_air_count) == (0, 0)
