"""Events by number: none lost, none doubled, bounded."""

import json
import random

import anyio
import pytest
from anyio.lowlevel import checkpoint

from streamer.net.realtime import journal as module
from streamer.net.realtime.journal import KEPT, MAX_HELD, MAX_UNSENT, Journal


def event(i):
    return {"type": "x", "i": i}


@pytest.mark.parametrize("seed", range(20))
def test_every_event_that_is_kept_is_found_by_its_number(seed):
    """Against a plain list, through random appends, confirmations and attachments."""
    chance, journal, said = random.Random(seed), Journal("a"), 0
    for _ in range(300):
        num = chance.choice([0, 1, 5, 200])
        journal.append([event(said + i) for i in range(num)])
        said += num
        if chance.random() < 0.5:
            journal.confirm(chance.randint(0, said + 10))
        journal.read_by(chance.random() < 0.5)
        assert journal.end == said
        assert journal.first <= journal.num_read <= said
        assert said - journal.first <= MAX_HELD
        assert journal.num_read - journal.first <= KEPT
        if journal.first < said:
            number = chance.randrange(journal.first, said)
            assert json.loads(journal[number]) == {
                "event_id": f"event_a_{number}",
                "type": "x",
                "i": number,
            }


def test_what_nobody_reads_is_forgotten_from_its_beginning():
    journal = Journal("a")
    journal.append([event(i) for i in range(MAX_HELD + 7)])
    assert (journal.first, journal.num_read, journal.end) == (7, 7, MAX_HELD + 7)


async def test_room_waits_for_a_reader_and_only_where_there_is_one(monkeypatch):
    monkeypatch.setattr(module, "MAX_UNSENT", 3)
    journal, passed = Journal("a"), []
    journal.append([event(i) for i in range(3)])
    await journal.room()  # nobody reads

    async def wait():
        await journal.room()
        passed.append(True)

    journal.read_by(True)
    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert not passed
        journal.confirm(1)  # a pong may be long on its way: it is no measure of room
        await anyio.wait_all_tasks_blocked()
        assert not passed
        journal.sent(1)
        await anyio.wait_all_tasks_blocked()
        assert passed == [True]
        journal.append([event(3)])
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert passed == [True]
        journal.read_by(False)
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
    journal.read_by(True)
    async with anyio.create_task_group() as group:
        group.start_soon(journal.all_read)
        await anyio.wait_all_tasks_blocked()
        journal.confirm(5)


def test_the_bounds_are_small():
    """A session that nobody reads holds some megabytes of events, whatever it says; one that is
    read, far less."""
    assert KEPT + 2 * MAX_UNSENT <= MAX_HELD
    assert MAX_HELD * 350 < 3_500_000
