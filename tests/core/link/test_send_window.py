"""The window of unheard audio: bounded whatever the verifier does, wide where it is quick, narrow
where it is slow."""

import random
from collections import deque

import pytest

from streamer.core.link.send_window import MAX_SAMPLES, PIECE_SAMPLES, TARGET_S, SendWindow


def flow(window, per_s, rtt_s, seconds, turns=1, loss=0.0):
    """Turns with endless audio on a link that carries `per_s` samples a second: (heard, most
    unheard, longest wait at the end)."""
    chance, now, free_at, heard, most, waits = random.Random(1), 0.0, 0.0, 0, 0, deque(maxlen=50)
    due, own = deque(), [0] * turns
    while now < seconds:
        for i in range(turns):
            while n := window.room(own[i]):
                window.sent(n)
                own[i] += n
                free_at = max(free_at, now) + n / per_s
                due.append((free_at + rtt_s, i, n, now))
        most = max(most, window.num_unheard)
        now, i, n, sent_at = due.popleft()
        own[i] -= n
        if chance.random() < loss:
            window.dropped(n)
        else:
            window.heard(n, sent_at, now)
            waits.append(now - sent_at)
            heard += n
    return heard, most, max(waits)


@pytest.mark.parametrize("turns", [1, 4, 16])
@pytest.mark.parametrize("per_s", [8_000, 62_500, 625_000, 10_000_000])
@pytest.mark.parametrize("rtt_s", [0.0, 0.02, 0.2])
def test_what_is_unheard_is_bounded(per_s, rtt_s, turns):
    _, most, _ = flow(SendWindow(), per_s, rtt_s, 30.0, turns, 0.01)
    assert most <= MAX_SAMPLES + turns * PIECE_SAMPLES


@pytest.mark.parametrize("rtt_s", [0.02, 0.1, 0.2])
def test_a_quick_link_is_used(rtt_s):
    """20 Mbit/s: at least 20 seconds of audio in a second, as far as MAX_SAMPLES a round trip
    allow."""
    heard, *_ = flow(SendWindow(), 1_250_000, rtt_s, 10.0)
    assert heard / 10.0 > 0.8 * min(1_250_000, MAX_SAMPLES / (rtt_s + PIECE_SAMPLES / 1_250_000))


@pytest.mark.parametrize("per_s", [31_250, 62_500, 125_000])
def test_a_slow_link_holds_little(per_s):
    """What comes behind the audio waits for TARGET_S of it and a piece, not for the whole turn."""
    heard, _, longest = flow(SendWindow(), per_s, 0.05, 60.0)
    assert longest < 2 * TARGET_S + 0.05 + 3 * PIECE_SAMPLES / per_s
    assert heard / 60.0 > 0.7 * per_s, "and it is used"


def test_what_is_dropped_is_no_longer_counted():
    window = SendWindow()
    window.sent(5_000)
    window.dropped(5_000)
    assert window.num_unheard == 0
