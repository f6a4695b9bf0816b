"""How long a file waits for a verifier elsewhere: as a live turn would, and never for ever."""

import math

from streamer.core.link.patience import SLACK_S, SLOWEST, STUCK_S, Patience, VerifierProgress


def test_where_the_edge_may_go_on_the_verifier_has_what_a_live_one_has():
    patience = Patience(5.0, goes_on=True)
    assert patience.ends_at(10.0, 11.0, 30.0) == 40.0
    assert patience.ends_at(10.0, 45.0, 30.0) == 45.0, "the edge took longer itself"
    assert patience.stuck_s == STUCK_S
    assert Patience(0.3, goes_on=True).stuck_s == 0.3 + SLACK_S


def test_where_the_verdict_is_needed_a_thin_link_has_its_time_and_an_end():
    patience = Patience(30.0, goes_on=False)
    assert patience.ends_at(10.0, 11.0, 60.0) == 10.0 + SLOWEST * 60.0 + 30.0
    assert patience.stuck_s == 30.0


def test_only_news_is_progress():
    progress = VerifierProgress()
    assert (progress.began_at, progress.moved_at) == (math.inf, -math.inf)
    for now, num_samples, moved_at in (
        (1, 0, 1),
        (2, 0, 1),
        (3, 800, 3),
        (4, 400, 3),
        (5, 800, 3),
        (6, 801, 6),
    ):
        progress.heard(num_samples, float(now))
        assert progress.moved_at == moved_at
    progress.attach()
    progress.heard(0, 7.0)
    assert progress.moved_at == 7.0, "a new link, where it may have to hear all again"
