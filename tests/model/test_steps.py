"""Many streams on one engine: a stream's ids do not depend on its company, nor does its end touch the others'."""

import functools

import pytest
import torch
from speech import recording

from streamer.core.choice import Sampling
from streamer.core.rules import Rules
from streamer.model.drafters import IncrementalDrafter
from streamer.model.ear import Ear
from streamer.model.engine import Row
from streamer.model.listener import Listener
from streamer.model.steps import Rounds, drive
from streamer.model.thinker import load

NUM_IDS = 20


@pytest.fixture(scope="module")
def thinker(tiny_pair):
    return load(str(tiny_pair[0]), "edge", num_slots=6)


@functools.cache
def windows_of(seed):
    ear = Ear()
    complete = ear.push(recording(seed))
    rest = ear.finish()
    return complete, rest, ear.maximum


def sentence(thinker, seed, listener):
    """Steps of a whole turn: hear, finish, draft."""
    complete, rest, maximum = windows_of(seed)
    for window in complete:
        yield from listener.hear(window)
    yield from listener.finish(rest, maximum)
    drafter = IncrementalDrafter(listener, Rules(), Sampling(temperature=0.8, seed=seed))
    for _ in range(NUM_IDS):
        yield from drafter.draft(1)
    return listener.sequence.answer


def alone(thinker, seed):
    listener = Listener(thinker)
    ids = drive(thinker.engine, sentence(thinker, seed, listener))
    listener.close()
    return ids


def test_ids_alone_equal_ids_in_company(thinker):
    """Streams that come and go in any round, one of them dropped, one that breaks: the others' ids stay."""
    wanted = {seed: alone(thinker, seed) for seed in range(4)}
    rounds, listeners, found, number = Rounds(thinker.engine), {}, {}, 0
    comes = {0: 0, 2: 1, 3: "dropped", 5: 2, 7: "broken", 9: 3}

    def broken(listener):
        yield from listener.feed(0)
        yield Row(listener._slot, 10**6, [1])

    while len(found) < 5 or rounds:
        if (key := comes.get(number)) is not None:
            listeners[key] = Listener(thinker)
            if key == "broken":
                listeners[key].sequence.extend([1, 2])
                rounds.add(key, broken(listeners[key]))
            else:
                rounds.add(key, sentence(thinker, 0 if key == "dropped" else key, listeners[key]))
        if number == 12:
            rounds.drop("dropped")
        found |= {done.key: done for done in rounds.run()}
        number += 1
        assert number < 200
    assert {seed: found[seed].value for seed in wanted} == wanted
    assert "beyond the slot" in str(found["broken"].error)
    assert "dropped" not in found
    for listener in listeners.values():
        listener.close()
    assert thinker.engine.slots.num_free == 6


def test_one_round_feeds_all_rows_in_one_step(thinker, monkeypatch):
    sizes, step = [], thinker.engine.step
    monkeypatch.setattr(thinker.engine, "step", lambda rows: sizes.append(len(rows)) or step(rows))
    rounds = Rounds(thinker.engine)
    listeners = [Listener(thinker) for _ in range(3)]
    for seed, listener in enumerate(listeners):
        listener.sequence.extend([seed, 5])
        rounds.add(seed, listener.feed(1))
    assert {done.key: tuple(done.value.shape) for done in rounds.run()} == dict.fromkeys(
        range(3), (1, thinker.shapes.text.vocab)
    )
    assert sizes == [3]
    assert len(rounds) == 0
    for listener in listeners:
        listener.close()


def test_an_error_inside_the_steps_is_theirs_alone(thinker):
    def fails():
        raise KeyError("mine")
        yield

    rounds, listener = Rounds(thinker.engine), Listener(thinker)
    listener.sequence.extend([3])
    rounds.add("fails", fails())
    rounds.add("lives", listener.feed(1))
    done = {found.key: found for found in rounds.run()}
    assert isinstance(done["fails"].error, KeyError)
    assert torch.isfinite(done["lives"].value).all()
    listener.close()
