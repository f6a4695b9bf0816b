"""Histories under random faults: committed ids are never lost, doubled, reordered or changed."""

import asyncio
import copy
from collections import Counter
from dataclasses import replace

import pytest
from history import Entry, History, prove
from schedules import draw, run

AT_ONCE = 8
LONG = pytest.mark.long


@pytest.mark.parametrize(
    "first", [*range(0, 50, 10), *(pytest.param(i, marks=LONG) for i in range(50, 2_000, 50))]
)
async def test_no_committed_id_is_lost_doubled_reordered_or_changed(first):
    turns_at, done = asyncio.Semaphore(AT_ONCE), Counter()

    async def one(seed):
        async with turns_at:
            done.update(await run(draw(seed)))

    async with asyncio.TaskGroup() as group:
        for seed in range(first, first + (10 if first < 50 else 50)):
            group.create_task(one(seed))
    assert done["turns answered"] >= 10
    print(dict(done))


def seen(number, kind, **more):
    return Entry("seen", {"event_id": f"event_x_{number}", "type": kind, **more})


def healthy():
    """Two turns, in a session that begins anew with its server between them."""
    delta = {"item_id": "a", "verified": True}
    first = [
        Entry("began", 0),
        seen(0, "input_audio_buffer.committed", item_id="a"),
        seen(1, "response.output_text.delta", delta="xy"),
        seen(2, "streamer.delta", **delta, ids=[1, 2], text="xy"),
        seen(3, "streamer.description", item_id="a", description=told("xy", 2, 160)),
        seen(4, "input_audio_buffer.committed", item_id="b"),
        seen(5, "streamer.delta", **delta | {"item_id": "b"}, ids=[3], text=""),
    ]
    second = [
        Entry("began", 1),
        seen(0, "input_audio_buffer.committed", item_id="c"),
        seen(1, "response.output_text.delta", delta="z"),
        seen(2, "streamer.delta", **delta | {"item_id": "c"}, ids=[3, 4], text="z"),
        seen(3, "streamer.description", item_id="c", description=told("z", 2, 320)),
    ]
    return [*first, *second]


def told(text, n_tokens, num_samples):
    return {"text": text, "n_tokens": n_tokens, "audio_s": num_samples / 16_000}


WANTED = ([1, 2], [3, 4])
TURNS = (bytes(320), bytes(640))


def wrong(attempt):
    return None if attempt.ids == WANTED[attempt.turn][: len(attempt.ids)] else "other ids"


HARM = {
    "lose an event": lambda entries: entries.pop(2),
    "double an event": lambda entries: entries.insert(3, entries[3]),
    "reorder ids": lambda entries: entries[3].what["ids"].reverse(),
    "change an id": lambda entries: entries[3].what.update(ids=[7, 2]),
    "change an id of a dead server": lambda entries: entries[6].what.update(ids=[7]),
    "lose an answer": lambda entries: entries.__delitem__(slice(7, None)),
    "double an answer": lambda entries: entries.extend(entries[7:]),
    "answer another turn first": lambda entries: entries.insert(3, entries.pop(4)),
    "lose audio": lambda entries: entries[-1].what.update(description=told("z", 2, 288)),
    "lose an id": lambda entries: entries[3].what["ids"].pop(),
    "lose text": lambda entries: entries[3].what.update(text="x"),
}


@pytest.mark.parametrize("harm", HARM)
def test_the_proof_sees_harm(harm):
    entries = copy.deepcopy(healthy())
    assert len(prove(History(entries), TURNS, wrong)) == 2
    HARM[harm](entries)
    with pytest.raises(AssertionError):
        prove(History(entries), TURNS, wrong)


async def test_a_run_without_faults_says_what_each_model_says_alone():
    """So what the schedules are held to is a run without faults."""
    for seed in range(4):
        done = await run(replace(draw(seed), faults=(), cut_share=0.0))
        assert done["turns answered"] == len(draw(seed).turns)
        assert done["sockets cut"] == 0
