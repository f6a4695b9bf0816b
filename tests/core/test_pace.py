"""k follows the delay and what is accepted."""

from streamer.core.pace import LEAST_K, MOST_K, Pace


def learned(draft_s, verdict_s, accepted, tried=8):
    pace = Pace()
    for _ in range(200):
        pace.drafted(4, 4 * draft_s)
        pace.answered(verdict_s, accepted, tried)
    return pace


def test_it_learns_what_it_is_told():
    pace = learned(0.01, 0.2, 6)
    assert abs(pace.draft_s - 0.01) < 1e-4
    assert abs(pace.verdict_s - 0.2) < 1e-3
    assert abs(pace.acceptance - 6 / 7) < 0.01


def test_k_grows_with_delay_and_acceptance_and_shrinks_with_a_slow_edge():
    by_delay = [learned(0.002, d, 7).best_k(4) for d in (0.005, 0.05, 0.1, 0.4)]
    assert by_delay == sorted(by_delay)
    assert by_delay[0] < by_delay[-1]
    by_acceptance = [learned(0.004, 0.1, n).best_k(4) for n in (1, 4, 6, 8)]
    assert by_acceptance == sorted(by_acceptance)
    assert learned(0.3, 0.05, 5).best_k(4) == LEAST_K
    assert all(LEAST_K <= k <= MOST_K for k in (*by_delay, *by_acceptance))


def test_a_guess_needs_time_for_a_second_id():
    pace = learned(0.1, 0.2, 6)
    assert pace.is_worth_a_guess(0.25)
    assert not pace.is_worth_a_guess(0.15)
