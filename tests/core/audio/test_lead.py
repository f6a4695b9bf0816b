"""Who speaks is never ahead, who sends faster is, soon; who waits for those on time is served at
last."""

import pytest

from streamer.core.audio.lead import FREE_S, MOST_OWED_S, MOST_PASSED, Lead, Precedence


def sent(lead: Lead, seconds: float, rate: float, piece_s: float = 0.1, at_s: float = 0.0) -> bool:
    """Whether a stream was ever ahead that sends `seconds` of audio at `rate` times real time."""
    was_ahead = False
    for i in range(round(seconds / piece_s)):
        lead.fed(piece_s, at_s + i * piece_s / rate)
        was_ahead |= lead.is_ahead
    return was_ahead


@pytest.mark.parametrize("piece_s", [0.02, 0.1, 1.0])
@pytest.mark.parametrize("rate", [0.5, 1.0, 1.01])
def test_who_speaks_is_never_ahead_however_long(rate: float, piece_s: float) -> None:
    assert not sent(Lead(), 3_600, rate, piece_s)


@pytest.mark.parametrize("rate", [2.0, 10.0, 100.0, 1e6])
def test_who_pushes_is_ahead_after_a_few_seconds_of_audio(rate: float) -> None:
    lead = Lead()
    assert sent(lead, 4 * FREE_S, rate)
    assert lead.is_ahead


def test_what_a_cut_link_held_back_may_come_at_once_and_no_more_than_its_bound() -> None:
    lead = Lead()
    assert not sent(lead, 5, 1.0)
    assert not sent(lead, 10, 1e6, at_s=15.0)  # 10 s away, then all of it
    silent = Lead()
    silent.fed(0.1, 0.0)
    silent.fed(MOST_OWED_S, 86_400.0)
    assert not silent.is_ahead
    silent.fed(2 * FREE_S, 86_400.0)
    assert silent.is_ahead


def test_who_stops_pushing_is_soon_like_the_others() -> None:
    lead = Lead()
    assert sent(lead, 30, 10.0)
    sent(lead, 150, 1.0, at_s=3.0)
    assert not lead.is_ahead


def test_those_ahead_are_served_after_so_many_others_and_no_later() -> None:
    precedence = Precedence()
    assert [precedence.lets_pass(True, True) for _ in range(2 * MOST_PASSED + 2)] == 2 * [
        *[True] * MOST_PASSED,
        False,
    ]


def test_nobody_waits_for_who_is_not_there() -> None:
    precedence = Precedence()
    assert precedence.lets_pass(True, False)
    assert not precedence.lets_pass(False, True)
    assert precedence.num_passed == 0
