"""Many streams on one engine: neither company nor another's end changes a stream's ids."""

import functools
from dataclasses import dataclass, field

import pytest
from sessions import Passing
from speech import recording

from streamer.core.rules.settings import Rules, Sampling
from streamer.model.decoding import IncrementalDrafter
from streamer.model.engines.engine import Row, SlotsFull
from streamer.model.listener import Listener
from streamer.model.offline import items_of
from streamer.model.scheduler import PREFILL_IDS, StepScheduler, drive
from streamer.model.thinker import load

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
    drafter = IncrementalDrafter(listener, Rules(), Sampling(temperature=0.8, seed=seed))
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
    """Keeps the rows of each step."""

    steps: list = field(default_factory=list)

    def step(self, rows):
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
