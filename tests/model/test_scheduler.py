"""Many streams on one engine: neither company nor another's end changes a stream's ids; whole turns
on real architecture: streamed == whole == transformers.
"""

import functools
import threading
from dataclasses import dataclass, field

import anyio
import numpy as np
import pytest
import torch
from answers import answer, inputs_of
from sessions import Passing
from speech import cuts, recording, speech

from streamer.core.decoding.plan import Plan
from streamer.core.rules.settings import Rules, Sampling
from streamer.model.audio.turns import TurnCutter
from streamer.model.decoding import Decoder, GenerateDrafter, describe_so_far
from streamer.model.engines.engine import Row, SlotsFull
from streamer.model.engines.load import load_stock
from streamer.model.listener import Listener, hear, items_of
from streamer.model.scheduler import PREFILL_IDS, StepScheduler, drive
from streamer.model.thinker import load
from streamer.stages.parts import Batcher

NUM_IDS = 20


@dataclass(eq=False)
class Job:
    steps: object
    value: object = None
    error: Exception | None = None


@pytest.fixture(scope="module")
def thinker(tiny_pair):
    return load(str(tiny_pair[0]), "edge", num_slots=6)


@functools.cache
def heard(seed):
    _, *parts, closed = items_of([recording(seed)], 60.0)
    return parts, closed


def sentence(thinker, seed, listener):
    """Steps of a whole turn: hear, finish, draft."""
    parts, closed = heard(seed)
    for part in parts:
        yield from listener.hear(part) or ()
    yield from listener.finish(closed.rest, closed.maximum)
    drafter = Decoder.of(listener, Rules(), Sampling(temperature=0.8, seed=seed))
    for _ in range(NUM_IDS):
        yield from drafter.draft(1)
    return listener.sequence.answer


def test_ids_alone_equal_ids_in_company(thinker):
    wanted = {}
    for seed in range(4):
        listener = Listener(thinker)
        wanted[seed] = drive(thinker.engine, sentence(thinker, seed, listener))
        listener.close()
    rounds, listeners, jobs, found, number = StepScheduler(thinker.engine), {}, {}, {}, 0
    comes = {0: 0, 2: 1, 3: "dropped", 5: 2, 7: "broken", 9: 3}

    def broken(listener):
        yield from listener.feed(0)
        yield Row(listener._slot, 10**6, [1])

    while len(found) < 5 or rounds:
        if (key := comes.get(number)) is not None:
            listeners[key] = Listener(thinker)
            if key == "broken":
                listeners[key].sequence.extend([1, 2])
                steps = broken(listeners[key])
            else:
                steps = sentence(thinker, 0 if key == "dropped" else key, listeners[key])
            jobs[key] = Job(steps)
            rounds.add(jobs[key])
        if number == 12:
            rounds.drop(jobs["dropped"])
        done = rounds.run()
        found |= {key: job for key, job in jobs.items() if job in done}
        number += 1
        assert number < 200
    assert {seed: found[seed].value for seed in wanted} == wanted
    assert "beyond the slot" in str(found["broken"].error)
    assert "dropped" not in found
    for listener in listeners.values():
        listener.close()
    assert thinker.engine.num_free == 6


def test_slots_are_bounded_and_come_back(thinker):
    engine = thinker.engine
    taken = [engine.open() for _ in range(6)]
    with pytest.raises(SlotsFull, match="6 KV slots"):
        engine.open()
    for slot in taken:
        engine.close(slot)
    assert engine.num_free == 6
    with pytest.raises(KeyError):
        engine.close(0)


def next_ids(listener, n):
    """n next ids of a listener, by no rule: the highest logit each."""
    for _ in range(n):
        logits = yield from listener.feed(1)
        listener.sequence.extend([int(logits[0].argmax())])
    return listener.sequence.ids


@dataclass(frozen=True)
class NotedEngine(Passing):
    """Keeps the rows of each step, and the threads that take them."""

    steps: list = field(default_factory=list)
    threads: set = field(default_factory=set)

    def step(self, rows):
        self.threads.add(threading.get_ident())
        self.steps.append([row._replace(ids=list(row.ids)) for row in rows])
        return self.inner.step(rows)


def test_nobody_s_next_id_waits_for_a_long_prefill(thinker):
    """Beside prefills of 400 ids, each round gives the speaker an id."""
    engine = NotedEngine(thinker.engine)
    rounds, (speaker, *others) = StepScheduler(engine), [Listener(thinker) for _ in range(4)]
    speaker.sequence.extend([7])
    rounds.add(Job(next_ids(speaker, 15)))
    for i, other in enumerate(others):
        other.sequence.extend([i + 1] * 400)
    jobs = [Job(other.feed(1 if i == 2 else 0)) for i, other in enumerate(others)]
    for job in jobs:
        rounds.add(job)
    finished = []
    for number in range(15):
        finished += rounds.run()
        speaking, *prefilling = (len(row.ids) for row in engine.steps[-1])
        assert speaking == 1
        assert sum(prefilling) <= PREFILL_IDS
        assert len(speaker.sequence) == len(thinker.engine.prompt_ids) + 1 + number + 1
    while rounds:
        finished += rounds.run()
    order = [jobs.index(job) for job in finished if job in jobs]
    assert order == [2, 0, 1], "those that end a turn first, as they came"
    num_fed = sum(len(row.ids) for rows in engine.steps for row in rows)
    assert num_fed == 15 + 3 * 400, "each id is fed once"
    for listener in (speaker, *others):
        listener.close()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_many_callers_share_steps_and_get_their_own_results(thinker, backend):
    engine, listeners = NotedEngine(thinker.engine), [Listener(thinker) for _ in range(6)]
    wanted, found = [], {}
    for i, listener in enumerate(listeners):
        listener.sequence.extend([i])
        listener.sequence.start_answer()
        wanted.append(drive(thinker.engine, next_ids(listener, 9)))
        listener.sequence.replace_tail(listener.sequence.answer_start)

    def failing():
        yield from listeners[0].feed(1)
        raise ValueError("mine")

    async def main():
        async def call(i):
            found[i] = await batcher.submit(next_ids(listeners[i], 9))

        async with Batcher(StepScheduler(engine), "test", listen=None) as batcher:
            async with anyio.create_task_group() as group:
                for i in range(6):
                    group.start_soon(call, i)
            with pytest.raises(ValueError, match="mine"):
                await batcher.submit(failing())

    anyio.run(main, backend=backend)
    assert [found[i] for i in range(6)] == wanted
    assert max(map(len, engine.steps)) > 2, "ready rows of many streams go into one step"
    assert len(engine.threads) == 1
    assert engine.threads != {threading.get_ident()}
    for listener in listeners:
        listener.close()


@pytest.fixture(scope="module")
def pair(tiny_pair):
    return load(str(tiny_pair[0]), "edge"), load(str(tiny_pair[1]), "cloud")


def heard_in(thinker, samples, pieces, provisional=False):
    """A listener that heard `samples` in `pieces`; the caller closes it."""
    every_s = 0.1 if provisional else None
    listener = Listener(thinker)
    cutter = TurnCutter(16_000, 60.0, live_update_s=every_s, is_recording=True)
    for item in [i for piece in pieces for i in cutter.push(samples[piece].tobytes())]:
        hear(listener, item)
        if getattr(item, "provisional", None) is not None:
            rules = Rules(max_new_tokens=6, min_new_tokens=0)
            steps = describe_so_far(listener, item.provisional, rules, Sampling())
            drive(thinker.engine, steps)
    for item in cutter.commit():
        hear(listener, item, prefills=False)
    return listener


@pytest.mark.parametrize("seed", range(4))
def test_prefill_streamed_equals_whole_equals_stock(pair, tiny_pair, seed):
    """Any cut, provisional windows and redos between them."""
    cloud, samples = pair[1], speech(4.7 + 2.1 * seed, seed, crescendo=seed % 2 == 0)
    one = heard_in(cloud, samples, [slice(None)])
    many = heard_in(cloud, samples, cuts(len(samples), seed), provisional=seed >= 2)
    assert one.sequence.ids == many.sequence.ids
    assert np.array_equal(one.features(), many.features())
    wanted, got = drive(cloud.engine, one.feed(1)), drive(cloud.engine, many.feed(1))
    np.testing.assert_allclose(got, wanted, atol=1e-4, rtol=1e-4)
    if seed % 2 == 0:
        assert many._ledger._resting_until > 0, "the crescendo must have made windows stale"
    stock = load_stock(tiny_pair[1])
    with torch.inference_mode():
        logits = stock(**inputs_of(one)).logits[0, -1]
    np.testing.assert_allclose(wanted[0], logits, atol=2e-4, rtol=1e-4)
    one.close()
    many.close()


def test_the_generate_drafter_keeps_exact_mode_exact(pair, tiny_pair):
    edge, cloud = pair
    samples, stock = recording(3)[: 16_000 * 3], load_stock(tiny_pair[0])
    wanted = answer(None, cloud, Plan(mode="cloud"), Sampling(), samples)

    def generating(drafter):
        return GenerateDrafter(drafter.listener, stock)

    plan = Plan(mode="exact", k=3)
    found = answer(edge, cloud, plan, Sampling(), samples, before=generating)
    assert found.ids == wanted.ids
    assert found.counts.n_drafted > 0
