"""The compiled rules, choice and stop against the readable ones: the same bits, whatever was said
before."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import PIECES, rules_of_any_kind, vocabularies
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.core.decoding.accept import accept
from streamer.core.decoding.gate import Signal
from streamer.core.rules.constrain import constrain
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules
from streamer.core.rules.stop import stop
from streamer.core.text.vocabulary import Vocabulary
from streamer.model.choose import choose
from streamer.model.kernels.rule_book import MOST, rule_book
from streamer.model.sampler import Chooser

GREEDY = Sampling()


def readable(
    vocabulary: Vocabulary, rules: Rules, said: list[int], logits: np.ndarray
) -> tuple[int, bool, Signal]:
    never = vocabulary.never
    found = choose(logits, [constrain(vocabulary, rules, said)], never, GREEDY, rules)
    return found.ids[0], stop(vocabulary, rules, said, found.ids[0]) is not None, found.signals[0]


def check(data: st.DataObject) -> None:
    vocabulary, rules = data.draw(vocabularies()), data.draw(rules_of_any_kind)
    said = data.draw(st.lists(st.integers(0, vocabulary.num_ids - 1), max_size=24))
    seed = data.draw(st.integers(0, 2**32))
    # few distinct values: equal logits and rows where everything is banned are common
    drawn = np.random.default_rng(seed).integers(-6, 7, (1, vocabulary.num_ids))
    logits = (0.75 * drawn).astype(np.float32)  # of float64 the kernels would take other sums
    chooser = Chooser(vocabulary, rules, GREEDY)
    chooser.begin(said)
    before = logits.copy()
    found = chooser.next(logits)
    wanted = readable(vocabulary, rules, said, logits)
    assert found == wanted
    assert np.array_equal(logits, before)


@settings(max_examples=300)
@given(st.data())
def test_the_compiled_way_gives_the_bits_of_the_readable_one(data: st.DataObject) -> None:
    check(data)


@pytest.mark.long
@settings(max_examples=20_000, deadline=None)
@given(st.data())
def test_it_does_so_20_000_times(data: st.DataObject) -> None:
    check(data)


@settings(max_examples=60)
@given(st.data())
def test_an_answer_grows_id_by_id_and_is_judged_at_once(data: st.DataObject) -> None:
    """`next` again and again, a rollback between, and `judge` of the same ids: as from each prefix
    alone."""
    vocabulary, rules = data.draw(vocabularies()), data.draw(rules_of_any_kind)
    seed = data.draw(st.integers(0, 2**32))
    noise = np.random.default_rng(seed).standard_normal((12, vocabulary.num_ids), np.float32) * 4
    chooser, said = Chooser(vocabulary, rules, GREEDY), list[int]()
    chooser.begin(said)
    for row in range(12):
        wanted = readable(vocabulary, rules, said, noise[row : row + 1])
        assert chooser.next(noise, row) == wanted
        said.append(wanted[0])
    cut = data.draw(st.integers(0, 11))
    chooser.begin(said[:cut])
    assert chooser.next(noise, cut)[0] == said[cut]
    k = data.draw(st.integers(0, 11))
    other = said[: 11 - k] + data.draw(
        st.lists(st.integers(0, vocabulary.num_ids - 1), min_size=k, max_size=k)
    )
    rows = noise[11 - k :]
    judge = Chooser(vocabulary, rules, GREEDY)
    wide = np.zeros((k + 1, vocabulary.num_ids + 5), np.float32)
    wide[:, : vocabulary.num_ids] = rows
    one_by_one = [
        readable(vocabulary, rules, other[: 11 - k + i], rows[i : i + 1]) for i in range(k + 1)
    ]
    chosen = [token for token, _, _ in one_by_one]
    num_told = 1 + accept(other[11 - k :], chosen)[0]
    expected = chosen, [signal.log_prob for _, _, signal in one_by_one[:num_told]]
    assert judge.judge(rows, other, k) == expected
    assert judge.judge(wide[:, : vocabulary.num_ids], other, k) == expected, "rows of a wider array"


def test_a_long_answer_outgrows_its_array() -> None:
    vocabulary = Vocabulary.build(
        [p.encode() for p in PIECES] + [b"<eos>"], [len(PIECES)], [len(PIECES)]
    )
    rules = Rules(max_new_tokens=1000, loop_global=False)
    chooser, said = (Chooser(vocabulary, rules, GREEDY), list[int]())
    noise = np.random.default_rng(3).standard_normal((300, vocabulary.num_ids), np.float32)
    chooser.begin([])
    for row in range(300):
        assert (
            chooser.next(noise, row)[0]
            == readable(vocabulary, rules, said, noise[row : row + 1])[0]
        )
        said.append(readable(vocabulary, rules, said, noise[row : row + 1])[0])


def test_rules_of_too_many_states_and_chance_go_the_readable_way() -> None:
    vocabulary = Vocabulary.build(
        [p.encode() for p in PIECES] + [b"<eos>"], [len(PIECES)], [len(PIECES)]
    )
    assert rule_book(vocabulary, Rules(comma_gap=MOST + 1)) is None
    never, logits = (
        vocabulary.never,
        np.random.default_rng(1).standard_normal((1, vocabulary.num_ids), np.float32),
    )
    for rules, sampling in ((Rules(comma_gap=MOST + 1), GREEDY), (Rules(), Sampling(0.9, 0.8, 4))):
        chooser = Chooser(vocabulary, rules, sampling)
        chooser.begin([1, 2])
        wanted = choose(logits, [constrain(vocabulary, rules, [1, 2])], never, sampling, rules)
        found, _, signal = chooser.next(logits)
        assert (found, signal) == (wanted.ids[0], wanted.signals[0])


def test_the_book_is_kept() -> None:
    vocabulary = Vocabulary.build(
        [p.encode() for p in PIECES] + [b"<eos>"], [len(PIECES)], [len(PIECES)]
    )
    assert rule_book(vocabulary, Rules()) is rule_book(vocabulary, Rules())
    assert rule_book(vocabulary, Rules()).dtype == np.int32
