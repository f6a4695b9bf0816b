"""The compiled rules, choice and stop against the readable ones: the same bits, whatever was said
before."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from drawn import PIECES, rules_of_any_kind, vocabularies
from hypothesis import given, settings
from hypothesis import strategies as st

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
    vocabulary: Vocabulary, rules: Rules, said: list[int], logits: torch.Tensor
) -> tuple[int, bool, Signal]:
    never = torch.from_numpy(vocabulary.never)
    found = choose(logits, [constrain(vocabulary, rules, said)], never, GREEDY, rules)
    return found.ids[0], stop(vocabulary, rules, said, found.ids[0]) is not None, found.signals[0]


def check(data: st.DataObject) -> None:
    vocabulary, rules = data.draw(vocabularies()), data.draw(rules_of_any_kind)
    said = data.draw(st.lists(st.integers(0, vocabulary.num_ids - 1), max_size=24))
    seed = data.draw(st.integers(0, 2**32))
    # few distinct values: equal logits and rows where everything is banned are common
    logits = (
        torch.randint(-6, 7, (1, vocabulary.num_ids), generator=torch.Generator().manual_seed(seed))
        * 0.75
    )
    chooser = Chooser(vocabulary, torch.from_numpy(vocabulary.never), rules, GREEDY)
    chooser.begin(said)
    before = logits.clone()
    assert chooser.next(logits) == readable(vocabulary, rules, said, logits)
    assert torch.equal(logits, before)


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
    noise = torch.randn(12, vocabulary.num_ids, generator=torch.Generator().manual_seed(seed)) * 4
    never = torch.from_numpy(vocabulary.never)
    chooser, said = Chooser(vocabulary, never, rules, GREEDY), list[int]()
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
    judge = Chooser(vocabulary, never, rules, GREEDY)
    wide = torch.zeros(k + 1, vocabulary.num_ids + 5)
    wide[:, : vocabulary.num_ids] = rows
    expected = [
        readable(vocabulary, rules, other[: 11 - k + i], rows[i : i + 1])[0] for i in range(k + 1)
    ]
    assert judge.judge(rows, other, k) == expected
    assert judge.judge(wide[:, : vocabulary.num_ids], other, k) == expected, "rows of a wider array"


def test_a_long_answer_outgrows_its_array() -> None:
    vocabulary = Vocabulary.build(
        [p.encode() for p in PIECES] + [b"<eos>"], [len(PIECES)], [len(PIECES)]
    )
    rules = Rules(max_new_tokens=1000, loop_global=False)
    chooser, said = (
        Chooser(vocabulary, torch.from_numpy(vocabulary.never), rules, GREEDY),
        list[int](),
    )
    noise = torch.randn(300, vocabulary.num_ids, generator=torch.Generator().manual_seed(3))
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
    never, logits = torch.from_numpy(vocabulary.never), torch.randn(1, vocabulary.num_ids)
    for rules, sampling in ((Rules(comma_gap=MOST + 1), GREEDY), (Rules(), Sampling(0.9, 0.8, 4))):
        chooser = Chooser(vocabulary, never, rules, sampling)
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


def test_logits_that_compiled_code_cannot_read_go_the_readable_way() -> None:
    """Half precision, or every second column of a wider array: never read by their address."""
    vocabulary = Vocabulary.build(
        [p.encode() for p in PIECES] + [b"<eos>"], [len(PIECES)], [len(PIECES)]
    )
    never, v = torch.from_numpy(vocabulary.never), vocabulary.num_ids
    for logits in (torch.randn(1, v, dtype=torch.float16), torch.randn(1, 2 * v)[:, ::2]):
        chooser = Chooser(vocabulary, never, Rules(), GREEDY)
        chooser.begin([1])
        assert chooser.next(logits) == readable(vocabulary, Rules(), [1], logits)
