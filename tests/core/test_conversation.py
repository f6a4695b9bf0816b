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


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        (
            [(1, 5), (8, 10)],
            [(5.5, 7.5), (14, 16)],
            {"talk_share": (0.6, 0.4), "turns": (2, 2), "interruptions": (0, 0)}
            | {"gap_median_s": 0.5, "overlap_share": 0, "dead_air_s": 4},
        ),
        (
            [(0, 5)],
            [(4, 8)],
            {"interruptions": (0, 1), "overlap_share": 1 / 8, "gap_median_s": None},
        ),
        ([(0, 10)], [(4, 4.5)], {"turns": (1, 0), "interruptions": (0, 0)}),  # a yes
        ([(0, 2), (2.5, 4)], [(2.1, 2.4), (6, 8)], {"turns": (1, 1), "gap_median_s": 2}),
        ([(10, 12)], [(12.5, 14)], {"dead_air_s": 0}),
    ],
)
def test_what_is_a_turn_an_interruption_and_dead_air(first, second, wanted):
    found = of(first, second)
    for name, value in wanted.items():
        assert getattr(found, name) == pytest.approx(value), name
