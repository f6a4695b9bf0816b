"""The one owner of length: cuts, commits and the cache's bound, by random operations against a
plain list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.core.decoding.sequence import Sequence

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["extend", "feed", "cut", "commit"]), st.integers(0, 6), st.integers(0, 6)
    ),
    max_size=60,
)


@given(OPERATIONS)
def test_any_operations_keep_ids_and_cache_true(operations):
    """The cache never holds an id that is not there, and one id at least stays to be fed."""
    sequence, model = Sequence([1, 2, 3]), [1, 2, 3]
    sequence.start_answer()
    committed, cached = 0, model[:0]
    for i, (kind, a, b) in enumerate(operations):
        if kind == "extend":
            new = [100 * i + j for j in range(a)]
            sequence.extend(new)
            model += new
        elif kind == "feed":
            n = min(a, len(model) - sequence.n_cached - 1)
            cached = cached[: sequence.n_cached] + sequence.pending[: max(0, n)]
            sequence.mark_fed(max(0, n))
        elif kind == "cut":
            n = max(3 + committed, len(model) - a)
            new = [-100 * i - j for j in range(b)]
            sequence.replace_tail(n, new)
            model[n:] = new
        else:
            n = min(a, len(model) - 3 - committed)
            sequence.commit(n)
            committed += n
        assert list(sequence.ids) == model
        assert sequence.n_cached <= len(model) - 1
        assert cached[: sequence.n_cached] == model[: sequence.n_cached], (
            "the slot holds what the ids say"
        )
        assert sequence.pending == model[sequence.n_cached :]
        assert sequence.n_committed == committed


def test_a_committed_id_is_never_cut():
    sequence = Sequence([1])
    sequence.start_answer()
    sequence.extend([5, 6, 7])
    sequence.commit(2)
    with pytest.raises(ValueError, match="kept for good"):
        sequence.replace_tail(2)
    sequence.replace_tail(3, [8])
    assert sequence.answer == [5, 6, 8]


def test_misuse_is_told_in_one_line():
    sequence = Sequence([1], n_cached=1)
    with pytest.raises(RuntimeError, match="start_answer"):
        _ = sequence.answer
    with pytest.raises(ValueError, match="pending"):
        sequence.mark_fed(2)
    with pytest.raises(ValueError, match="outside"):
        Sequence([1], n_cached=2)
    sequence.start_answer()
    assert sequence.pending == [1], "audio may be cached whole until the answer starts"
    with pytest.raises(ValueError, match="beyond the answer"):
        sequence.commit(1)
