"""Events by number: none lost, none doubled, bounded."""

import json
import random

import anyio
import pytest
from anyio.lowlevel import checkpoint

from streamer.net.realtime import journal as module
from streamer.net.realtime.journal import (
    KEPT_BYTES,
    MAX_HELD_BYTES,
    MAX_UNSENT_BYTES,
    OBJECT_BYTES,
    Journal,
)


def event(i, size=0):
    return {"type": "x", "i": i, "text": "x" * size}


@pytest.mark.parametrize("seed", range(20))
def test_every_event_that_is_kept_is_found_by_its_number(seed, monkeypatch):
    """Against plain lists, through random appends, confirmations and attachments."""
    monkeypatch.setattr(module, "MAX_HELD_BYTES", 30_000)
    monkeypatch.setattr(module, "KEPT_BYTES", 3_000)
    chance, journal, said, sizes = random.Random(seed), Journal("a"), 0, []
    for _ in range(300):
        new = [event(said + i, chance.choice([0, 9, 500])) for i in range(chance.choice([0, 1, 9]))]
        journal.append(new)
        said += len(new)
        sizes += [OBJECT_BYTES + len(journal[said - len(new) + i]) for i in range(len(new))]
        if chance.random() < 0.3:
            journal.confirm(chance.randint(0, said + 10))
        if chance.random() < 0.5:
            journal.sent(chance.randint(0, said))
        journal.attach(chance.random() < 0.5)
        assert journal.end == said
        assert journal.first <= journal.num_read <= journal.num_sent <= said
        assert journal.num_bytes == sum(sizes[journal.first :]) <= 30_000
        assert journal._unsent_bytes == sum(sizes[journal.num_sent :])
        assert journal._read_bytes == sum(sizes[journal.first : journal.num_read]) <= 3_000
        if journal.first < said:
            number = chance.randrange(journal.first, said)
            row = json.loads(journal[number])
            assert (row["event_id"], row["i"]) == (f"event_a_{number}", number)


def test_what_nobody_reads_is_forgotten_from_its_beginning():
    """Whatever the events hold, no more than MAX_HELD_BYTES stay, and the last one does."""
    journal = Journal("a")
    for i in range(60):
        journal.append([event(i, 1 << 18)])
    assert journal.num_bytes <= MAX_HELD_BYTES
    assert journal.first == journal.num_read == 60 - len(journal._events) == 49
    assert json.loads(journal[59])["i"] == 59


async def test_room_waits_for_a_reader_and_only_where_there_is_one():
    journal, passed = Journal("a"), []
    third = MAX_UNSENT_BYTES // 3
    journal.append([event(i, third) for i in range(3)])
    await journal.room()  # no socket is attached

    async def wait():
        await journal.room()
        passed.append(True)

    journal.attach(True)
    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert not passed
        journal.sent(1)
        await anyio.wait_all_tasks_blocked()
        assert passed == [True]
        journal.append([event(3, third)])
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert passed == [True]
        journal.attach(False)
    assert passed == [True, True]


async def test_more_and_all_read_wait_for_what_they_say():
    journal, seen = Journal("a"), []

    async def read():
        for number in range(5):
            await journal.more(number)
            seen.append(number)
            await checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        assert seen == []
        journal.append([event(i) for i in range(5)])
    assert seen == [0, 1, 2, 3, 4]
    journal.attach(True)
    async with anyio.create_task_group() as group:
        group.start_soon(journal.all_read)
        await anyio.wait_all_tasks_blocked()
        journal.confirm(5)


def test_what_is_read_does_not_push_out_what_is_not():
    assert KEPT_BYTES + 2 * MAX_UNSENT_BYTES < MAX_HELD_BYTES
