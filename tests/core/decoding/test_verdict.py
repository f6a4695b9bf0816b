"""The target's ledger: a repeat is answered, never applied; stale and foreign requests are
refused."""

import pytest

from streamer.core.decoding.plan import Refusal, TargetLedger, VerifyRequest, accept, prefix_hash
from streamer.core.decoding.sequence import Sequence


def ledger():
    sequence = Sequence([1, 2])
    sequence.start_answer()
    return TargetLedger(sequence)


def ask(number, base=0, unverified=(), draft=(), known=()):
    return VerifyRequest(number, base, prefix_hash(known[:base]), tuple(unverified), tuple(draft))


def test_accept_is_the_longest_equal_prefix():
    assert accept([4, 5, 6], [4, 5, 6, 7]) == (3, 7)
    assert accept([4, 5, 6], [4, 9, 6, 7]) == (1, 9)
    assert accept([], [3]) == (0, 3)
    with pytest.raises(ValueError, match="need 2"):
        accept([1], [1])


def test_a_repeat_gets_the_same_verdict_without_a_step():
    book = ledger()
    request = ask(1, draft=[4, 5])
    book.begin(request)
    verdict = book.conclude(request, [4, 8, 6], [-0.5, -1.0, -2.0])
    assert (verdict.n_accepted, verdict.next_id, verdict.log_probs) == (1, 8, (-0.5, -1.0))
    before = book.sequence.ids, book.sequence.n_cached
    assert book.begin(request) == verdict
    assert (book.sequence.ids, book.sequence.n_cached) == before


def test_older_and_foreign_requests_are_refused():
    book = ledger()
    request = ask(2, draft=[4])
    book.begin(request)
    book.conclude(request, [4, 7])
    assert book.begin(ask(1, draft=[4])) == Refusal(1, "stale")
    assert book.begin(ask(3, base=2, draft=[5], known=[4, 9])) == Refusal(3, "prefix")
    assert book.begin(ask(4, base=9, draft=[5], known=range(9))) == Refusal(4, "prefix")
    assert book.sequence.answer == [4, 7], "a refusal changes nothing"


def test_commits_without_the_target_take_the_place_of_its_own():
    """A verdict was lost and the edge went on unverified: the target rolls back to the agreed
    prefix."""
    book = ledger()
    first = ask(1, draft=[4, 5])
    book.begin(first)
    book.conclude(first, [4, 8, 6])
    second = ask(2, base=0, unverified=[4, 5], draft=[9])
    assert book.begin(second) is None
    assert book.sequence.answer == [4, 5, 9]
    assert book.sequence.n_cached <= len(book.sequence) - 1 - len(second.draft), (
        "the block's logits are to come"
    )
