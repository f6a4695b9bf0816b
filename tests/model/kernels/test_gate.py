"""The compiled gate against the readable one, and runs inside the kernels against one block at a
time."""

from __future__ import annotations

import random
from array import array
from typing import Any

import numpy as np
import pytest
from drawn import rules_of_any_kind, vocabularies
from hypothesis import given, settings
from hypothesis import strategies as st
from speech import recording, speech
from tiny_thinker import thinker_of

from streamer.core.decoding.gate import Gate, Signal, fires
from streamer.core.decoding.pace import Pace
from streamer.core.decoding.speculate import Done, DraftMore, Emit, Plan, Speculator, Verify
from streamer.core.decoding.verdict import Verdict
from streamer.core.rules.constrain import Rules
from streamer.core.rules.sampling import Sampling
from streamer.model.drafters import IncrementalDrafter
from streamer.model.kernels.gate import gate_fires, gate_numbers
from streamer.model.kernels.rule_book import rule_book
from streamer.model.kernels.text import FastText
from streamer.model.listener import Listener
from streamer.model.offline import hear_turn
from streamer.model.scheduler import StepScheduler, drive
from streamer.model.thinker import EMBEDDED, Thinker, load

NO_RUNS = 1e9  # seconds per id
LEVELS = [0.0, 0.1, 0.25, 0.4, 0.5, 1.0, 2.0, 5.75]
few = st.sampled_from(LEVELS)  # thresholds that signals meet exactly
gates = st.builds(
    Gate,
    entropy=st.none() | few | st.floats(0, 9),
    margin=st.none() | few | st.just(-1.0),
    log_prob=st.none() | few.map(lambda x: -x) | st.floats(-9, 0),
    surprise=st.none() | few | st.floats(0, 20),
    density=st.none() | few | st.just(-0.1),
    loop=st.booleans(),
)
signals_of_any_kind = st.builds(
    Signal, few | st.floats(0, 9), few | st.floats(0, 1), few.map(lambda x: -x) | st.floats(-9, 0)
)


def check(data: st.DataObject) -> None:
    vocabulary = data.draw(vocabularies())
    book = rule_book(vocabulary, Rules())
    num = data.draw(st.sampled_from([3, vocabulary.num_ids]))  # few ids: loops
    answer = data.draw(st.lists(st.integers(0, num - 1), max_size=26))
    begin = data.draw(st.integers(0, len(answer)))
    gate, block = data.draw(gates), answer[begin:]
    signals = data.draw(st.lists(signals_of_any_kind, min_size=len(block), max_size=len(block)))
    flat = np.array([number for signal in signals for number in signal])
    found = gate_fires(
        gate_numbers(gate)[0], book, np.array(answer, np.int64), begin, len(answer), flat
    )
    if any(vocabulary.invalid[i] for i in block):
        assert found, "the readable gate is asked"
    else:
        assert found == (fires(gate, vocabulary, answer[:begin], block, signals) is not None)


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_the_compiled_gate_fires_iff_the_readable_one_does(data: st.DataObject) -> None:
    check(data)


@pytest.mark.long
@settings(max_examples=20_000, deadline=None)
@given(st.data())
def test_it_does_so_20_000_times(data: st.DataObject) -> None:
    check(data)


def judged(
    listener: Listener, plan: Plan, pace: Pace, found: dict[str, Any], calls: list[int]
) -> Any:
    """Steps of one answer, with verdicts by chance; `found` becomes all that can be seen of it."""
    num_ids, chance = listener.thinker.vocabulary.num_ids, random.Random(7)
    machine = Speculator(plan, listener.thinker.vocabulary, listener.sequence, pace)
    drafter, is_first = IncrementalDrafter(listener, plan.rules, Sampling()), True
    shown, verified, asked = array("q"), list[bool](), list[Any]()
    while True:
        match machine.next(0.0):
            case DraftMore(n, run):
                calls.append(n)
                machine.drafted(
                    *(yield from drafter.draft(1) if is_first else drafter.draft(n, run))
                )
                is_first = False
            case Verify(request):
                asked.append(request)
                n = chance.randint(0, len(request.draft))
                machine.verdict(Verdict(request.number, n, chance.randrange(num_ids)))
            case Emit(ids, by_target):
                shown.extend(ids)
                verified += [by_target] * len(ids)
            case Done(reason):
                sequence = machine.sequence
                found.update(
                    shown=shown,
                    verified=verified,
                    asked=asked,
                    reason=reason,
                    counts=machine.counts,
                    ids=sequence.ids,
                    n_cached=sequence.n_cached,
                )
                return


def begun(thinker: Thinker, prompt: list[int]) -> Listener:
    listener = Listener(thinker)
    listener.sequence.extend(prompt)
    listener.sequence.start_answer()
    return listener


def check_runs(data: st.DataObject) -> None:
    """Alone and in company, whatever the rules, gate, mode and k."""
    vocabulary = data.draw(vocabularies())
    thinker, num = thinker_of(vocabulary, FastText, 0), data.draw(st.integers(1, 4))
    given = []
    for _ in range(num):
        plan = Plan(
            mode=data.draw(st.sampled_from(["edge", "gated"])),
            k=data.draw(st.integers(1, 7)),
            gate=data.draw(gates),
            rules=data.draw(rules_of_any_kind),
        )
        given.append(
            (
                plan,
                data.draw(st.lists(st.integers(0, vocabulary.num_ids - 1), min_size=1, max_size=9)),
            )
        )
    draft_s = data.draw(st.sampled_from([1e-9, 0.0003, 0.0005]))
    wanted: list[dict[str, Any]] = [{} for _ in given]
    found: list[dict[str, Any]] = [{} for _ in given]
    rounds, listeners = StepScheduler(thinker.engine), []
    for (plan, prompt), one, other in zip(given, wanted, found, strict=True):
        listener, pace = begun(thinker, prompt), Pace(NO_RUNS)
        drive(thinker.engine, judged(listener, plan, pace, one, []))
        listener.close()
        listeners.append(begun(thinker, prompt))
        rounds.add(len(listeners), judged(listeners[-1], plan, Pace(draft_s), other, []))
    while rounds:
        for done in rounds.run():
            assert done.error is None
    for listener in listeners:
        listener.close()
    assert found == wanted


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_runs_in_the_kernels_are_what_single_blocks_are(data: st.DataObject) -> None:
    check_runs(data)


@pytest.mark.long
@settings(max_examples=2000, deadline=None)
@given(st.data())
def test_they_are_so_2000_times(data: st.DataObject) -> None:
    check_runs(data)


@pytest.fixture(scope="module")
def edge() -> Thinker:
    return load(str(EMBEDDED / "edge"), "edge", num_slots=2)


@pytest.mark.parametrize("mode", ["edge", "gated"])
@pytest.mark.parametrize("seconds", [3, 10, 30])
def test_speech_is_answered_by_runs_as_by_blocks(edge: Thinker, mode: Any, seconds: int) -> None:
    """Real clips, real thresholds and tighter ones, in fewer steps."""
    for samples in (recording(seconds % 4), speech(seconds, seconds)):
        for gate in (
            edge.card.presets["fluent"].gate,
            edge.card.presets["quality"].gate,
            Gate(entropy=None),
        ):
            plan, seen = Plan(mode=mode, gate=gate), []
            for draft_s in (NO_RUNS, 0.00015, 1e-9):
                listener = hear_turn(edge, samples, prefills=False)
                found, calls = dict[str, Any](), list[int]()
                drive(listener.engine, judged(listener, plan, Pace(draft_s), found, calls))
                listener.close()
                seen.append((found, len(calls)))
            assert seen[0][0] == seen[1][0] == seen[2][0]
            assert seen[2][1] <= seen[1][1] <= seen[0][1]
            if mode == "edge":
                assert seen[2][1] <= 4 < len(seen[0][0]["shown"]) == seen[0][1]
