"""Blocks drafted inside the kernels against id by id: the same ids, signals and cache, alone and in
company."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from drawn import rules_of_any_kind, vocabularies
from hypothesis import given, settings
from hypothesis import strategies as st
from noted import noting
from speech import recording
from tiny_thinker import MOST_STREAMS, thinker_of

from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules
from streamer.core.text.vocabulary import Vocabulary
from streamer.model.drafters import IncrementalDrafter
from streamer.model.engines.engine import Row
from streamer.model.kernels.helpers import Crew
from streamer.model.kernels.lane import Writer
from streamer.model.kernels.text import FastText
from streamer.model.listener import Listener
from streamer.model.offline import hear_turn
from streamer.model.scheduler import StepScheduler, drive
from streamer.model.thinker import EMBEDDED, Thinker, load


class OneByOne(FastText):
    """The same kernels, asked for each id."""

    writes = False


def spoken(thinker: Thinker, script: dict[str, Any], found: list[Any]) -> Any:
    """Steps of a stream: a prompt, then blocks, each cut and corrected as a verdict would."""
    listener = Listener(thinker)
    sequence, drafter = listener.sequence, IncrementalDrafter(listener, script["rules"], Sampling())
    sequence.extend(script["prompt"])
    sequence.start_answer()
    try:
        for n, cut, correction in script["blocks"]:
            ids, signals = yield from drafter.draft(n)
            found.append((ids, signals, sequence.ids, sequence.n_cached))
            if cut:
                sequence.replace_tail(len(sequence) - min(cut, len(ids)), correction)
        found.append((yield from listener.feed(1)))
    finally:
        listener.close()


def beside(thinker: Thinker, num_ids: int, found: list[Any]) -> Any:
    """Steps of one who prefills, then verifies."""
    listener = Listener(thinker)
    try:
        for num_logits in (0, 3, 1, 3):
            listener.sequence.extend(
                [i % thinker.vocabulary.num_ids for i in range(max(num_ids, num_logits))]
            )
            found.append((yield from listener.feed(num_logits)))
    finally:
        listener.close()


def same(found: list[Any], wanted: list[Any]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other


@st.composite
def scripts(
    draw: st.DrawFn, vocabulary: Vocabulary, rules: Any = rules_of_any_kind
) -> dict[str, Any]:
    token = st.integers(0, vocabulary.num_ids - 1)
    block = st.tuples(st.integers(1, 9), st.integers(0, 4), st.lists(token, max_size=2))
    return {
        "rules": draw(rules),
        "prompt": draw(st.lists(token, min_size=1, max_size=9)),
        "blocks": draw(st.lists(block, min_size=1, max_size=4)),
    }


def check(data: st.DataObject, crew: Crew | None = None) -> None:
    vocabulary, size = data.draw(vocabularies()), data.draw(st.integers(0, 1))
    num = data.draw(st.integers(1, MOST_STREAMS - 1))
    given = [data.draw(scripts(vocabulary)) for _ in range(num)]
    prefilled = data.draw(st.integers(1, 20))
    alone, together = (
        thinker_of(vocabulary, OneByOne, size),
        thinker_of(vocabulary, FastText, size, crew),
    )
    wanted: dict[int, list[Any]] = {i: [] for i in range(-1, num)}
    found: dict[int, list[Any]] = {i: [] for i in range(-1, num)}
    drive(alone.engine, beside(alone, prefilled, wanted[-1]))
    rounds = StepScheduler(together.engine)
    rounds.add(-1, beside(together, prefilled, found[-1]))
    for i, script in enumerate(given):
        drive(alone.engine, spoken(alone, script, wanted[i]))
        rounds.add(i, spoken(together, script, found[i]))
    while rounds:
        for done in rounds.run():
            assert done.error is None
    for i in wanted:
        same(found[i], wanted[i])
    assert together.engine.slots.num_free == MOST_STREAMS


@settings(max_examples=60)
@given(st.data())
def test_blocks_are_what_single_ids_are(data: st.DataObject) -> None:
    check(data)


@settings(max_examples=20)
@given(st.data())
def test_blocks_shared_by_threads_too(data: st.DataObject) -> None:
    check(data, EAGER)


@pytest.mark.long
@settings(max_examples=5000, deadline=None)
@given(st.data())
def test_it_is_so_5000_times(data: st.DataObject) -> None:
    check(data, data.draw(st.sampled_from([None, EAGER])))


class Eager(Crew):
    """Takes part in whatever there is, however little."""

    def take(self, products: float) -> int:
        return super().take(1e12 if products else 0)


EAGER = Eager(3, lambda: 0)


@pytest.mark.parametrize("which", ["tiny", "shipped"])
def test_heard_speech_is_answered_by_blocks_as_by_ids(which: str, tiny_pair: Any) -> None:
    """Whole answers with real audio: every block size gives the ids and signals of one id per
    step."""
    thinker = load(str(tiny_pair[0] if which == "tiny" else EMBEDDED / "edge"), "edge", num_slots=2)
    assert thinker.engine.writes
    answers = []
    for n in (1, 4, 200):
        listener = hear_turn(thinker, recording(3), prefills=False)
        drafter, ids, signals = (
            IncrementalDrafter(listener, Rules(), Sampling()),
            list[int](),
            list[Any](),
        )
        while len(ids) < 20:
            block = drive(listener.engine, drafter.draft(min(n, 20 - len(ids))))
            ids += block[0]
            signals += block[1]
            if len(block[0]) < min(n, 20 - len(ids) + len(block[0])):
                break
        answers.append((ids[:20], signals[:20]))
        listener.close()
    shortest = min(len(ids) for ids, _ in answers)
    assert shortest > 0
    assert len({tuple(ids[:shortest]) for ids, _ in answers}) == 1
    assert answers[0][1][:shortest] == answers[1][1][:shortest] == answers[2][1][:shortest]


def test_one_block_is_one_step(tiny_pair: Any) -> None:
    """Six ids, one call; a sampled draft, and an engine without writers, take one call each id."""
    thinker = noting(load(str(tiny_pair[0]), "edge"))
    rules = Rules(clean=False, comma_gap=0, ngram=0, max_new_tokens=100)
    calls = thinker.engine.steps
    for sampling in (Sampling(), Sampling(0.8, 0.9, 1)):
        listener = Listener(thinker)
        listener.sequence.extend(thinker.suffix_ids)
        listener.sequence.start_answer()
        calls.clear()
        ids, signals = drive(thinker.engine, IncrementalDrafter(listener, rules, sampling).draft(6))
        assert len(ids) == len(signals)
        assert len(calls) <= (2 if sampling.temperature == 0 else 6)
        assert len(calls) == (len(calls) if sampling.temperature == 0 else len(ids))
        listener.close()


def test_a_block_ends_where_the_slot_does() -> None:
    """What fits is written; the id after it is refused as it is id by id."""
    vocabulary = Vocabulary.build([b"a", b"b", b"c", b"d", b"<eos>"], [4], [4])
    rules = Rules(
        clean=False,
        comma_gap=0,
        ngram=0,
        adjacency=False,
        loop_global=False,
        loop_local=False,
        min_new_tokens=200,
        max_new_tokens=400,
    )
    outcomes = []
    for kind in (OneByOne, FastText):
        thinker = thinker_of(vocabulary, kind, 0)
        listener = Listener(thinker)
        listener.sequence.extend([1] * 4)
        listener.sequence.start_answer()
        with pytest.raises(ValueError, match="beyond the slot"):
            drive(thinker.engine, IncrementalDrafter(listener, rules, Sampling()).draft(150))
        outcomes.append((listener.sequence.ids, listener.sequence.n_cached))
    assert outcomes[0] == outcomes[1]


def test_what_cannot_be_written_is_said_in_a_line() -> None:
    vocabulary = Vocabulary.build([b"a", b"b", b"<eos>"], [2], [2])
    thinker = thinker_of(vocabulary, FastText, 0)
    writer = Writer(np.zeros(26, np.int32), vocabulary.never[:0], 3, replace(Rules(), clean=False))
    with pytest.raises(ValueError, match="do not hold"):
        writer.begin(np.zeros(3, np.int64), 2, 2)
    writer.begin(np.zeros(8, np.int64), 2, 2)
    with pytest.raises(ValueError, match="one row of logits"):
        thinker.engine.step([Row(thinker.engine.open(), 2, [1, 2], num_logits=2, writer=writer)])
