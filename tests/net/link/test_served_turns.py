"""Turns and their slots, with a judge that is slow or broken: bounds hold whoever comes at once,
nothing is leaked."""

import time
from contextlib import asynccontextmanager

import anyio
import pytest
from patience import PATIENCE_S

from streamer.core.decoding.verdict import VerifyRequest, prefix_hash
from streamer.core.link import packing, wire
from streamer.core.link.verifier_turn import Broken, VerifierModel
from streamer.core.rules.settings import Rules
from streamer.net.link.served_turns import ServedTurns
from streamer.net.service.admission import Admission
from streamer.net.service.metrics import VerifierMetrics

MODEL = VerifierModel("model", "tokenizer", "zh", 1_000, 60.0)


class Slow:
    """A judge whose slot is free only some time after it is let go, as a step in hand wants."""

    def __init__(self, open_now):
        self._open = open_now
        self._open.append(self)

    async def hear(self, samples):
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.02)

    async def finish(self):
        raise RuntimeError("the model fell over")

    async def judge(self, request, runs_on):
        raise AssertionError("nothing here is to be judged")
        yield

    def close(self):
        self._open.remove(self)


class Said:
    """A link that remembers."""

    tenant = ""

    def __init__(self):
        self.messages = []

    def say(self, message):
        self.messages.append(message)


def opening(session, channel=0, epoch=1):
    return wire.Open(
        channel,
        bytes([session]) * 16,
        epoch,
        wire.VERSION,
        "",
        "tokenizer",
        "zh",
        dict(vars(Rules())),
        (0.0, 1.0, 0),
    )


@asynccontextmanager
async def serving_turns(hold_s=600.0):
    open_now, admission = [], Admission((wire.PATH,), 4)
    async with anyio.create_task_group() as group:
        turns = ServedTurns(
            lambda turn: Slow(open_now), MODEL, admission, VerifierMetrics(), hold_s
        )
        turns.start(group)
        yield turns, admission, open_now
        group.cancel_scope.cancel()
    assert (open_now, admission.num_sessions) == ([], 0)


async def hold_four(turns):
    """Turns that have heard something, whose link is gone."""
    gone = Said()
    for i in range(4):
        await turns.open(gone, opening(i, i))
        await turns.take(gone, wire.AudioMessage(i, 0, bytes(640), False))
    turns.detach(gone)


async def test_many_that_come_at_once_never_take_more_than_there_is():
    """Held turns make place, each once; who finds none is told, and may come again."""
    async with serving_turns() as (turns, admission, open_now):
        await hold_four(turns)
        assert turns.num_held == 4
        refused = []

        async def come(i):
            try:
                await turns.open(Said(), opening(100 + i))
            except Broken as broken:
                refused.append(broken.is_final)
            assert len(open_now) <= 4

        async with anyio.create_task_group() as group:
            for i in range(12):
                group.start_soon(come, i)
        assert refused == [False] * 8
        assert admission.num_sessions == len(open_now) == 4


async def test_a_model_that_fails_ends_one_turn():
    async with serving_turns() as (turns, admission, _):
        link = Said()
        for i in range(2):
            await turns.open(link, opening(i, i))
        await turns.take(link, wire.Finish(0, 0))
        with anyio.fail_after(PATIENCE_S):
            while admission.num_sessions == 2:
                await anyio.sleep(0.01)
        told = [message for message in link.messages if isinstance(message, wire.Rejected)]
        assert [(message.channel, message.is_final) for message in told] == [(0, True)]
        await turns.open(link, opening(9, 0))
        assert isinstance(link.messages[-1], wire.OpenedMessage)


async def test_one_that_comes_back_while_its_turn_ends_begins_anew():
    """It is not given a turn that is being let go."""
    async with serving_turns() as (turns, _, open_now):
        link = Said()
        await turns.open(link, opening(1))
        await turns.take(link, wire.AudioMessage(0, 0, bytes(640), False))
        await anyio.lowlevel.checkpoint()
        # a gap: the turn ends
        await turns.take(link, wire.AudioMessage(0, 5_000, bytes(640), False))
        assert isinstance(link.messages[-1], wire.Rejected)
        await turns.open(link, opening(1, 0, 2))
        assert link.messages[-1] == wire.OpenedMessage(0, 2, 0, "model")
        with anyio.fail_after(PATIENCE_S):
            while len(open_now) > 1:
                await anyio.sleep(0.01)


async def test_one_session_from_two_links_at_once_is_one_turn():
    """Both wait while a held turn makes place; the second finds what the first has begun, and its
    slot is no other."""
    async with serving_turns() as (turns, admission, open_now):
        await hold_four(turns)
        links, refused = [Said(), Said()], []

        async def come(link):
            try:
                await turns.open(link, opening(50))
            except Broken as broken:
                refused.append(broken)

        async with anyio.create_task_group() as group:
            for link in links:
                group.start_soon(come, link)
        assert [(str(broken), broken.is_final) for broken in refused] == [
            ("link 1 is older than link 1", False)
        ]
        assert sum(len(link.messages) for link in links) == 1
        num_before = admission.num_sessions
        for link in links:
            await turns.close(link, 0)
        assert admission.num_sessions == num_before - 1 == len(open_now) == turns.num_held


async def test_a_turn_whose_edge_has_gone_does_not_hold_up_the_end():
    async with serving_turns() as (turns, admission, _):
        links = [Said(), Said()]
        for i in range(2):
            await turns.open(links[i], opening(i))
        admission.is_draining = True
        with anyio.move_on_after(5) as waited:
            async with anyio.create_task_group() as group:
                group.start_soon(turns.all_over)
                await anyio.lowlevel.checkpoint()
                turns.detach(links[0])
                await turns.close(links[1], 0)
        assert not waited.cancelled_caught, "a turn without a link is waited for"


@pytest.mark.parametrize("leaves_again", [False, True])
async def test_one_that_comes_back_just_as_its_hold_is_over_is_not_let_go(leaves_again):
    """The event loop is held up, as a busy machine does: both are due when it goes on. One that
    leaves again at once is held anew."""
    hold_s, first, second = 0.2, Said(), Said()
    async with serving_turns(hold_s) as (turns, _, open_now):
        await turns.open(first, opening(1))
        turns.detach(first)
        over_at = anyio.current_time() + hold_s
        await anyio.lowlevel.checkpoint()

        async def come_back():
            await anyio.sleep_until(over_at - 0.005)
            await turns.open(second, opening(1, 0, 2))
            if leaves_again:
                turns.detach(second)

        async with anyio.create_task_group() as group:
            group.start_soon(come_back)
            await anyio.lowlevel.checkpoint()
            time.sleep(over_at + 0.01 - anyio.current_time())
        await anyio.wait_all_tasks_blocked()
        assert second.messages == [wire.OpenedMessage(0, 2, 0, "model")]
        assert len(open_now) == 1
        assert turns.num_held == leaves_again
        if leaves_again:
            third = Said()
            await turns.open(third, opening(1, 0, 3))
            assert third.messages == [wire.OpenedMessage(0, 3, 0, "model")]
            assert len(open_now) == 1


async def test_a_request_of_an_older_link_is_refused_and_not_judged():
    """It cannot be of this one: its prefix may be, and a verdict given under this link's epoch
    would be taken for one."""
    async with serving_turns() as (turns, _, _):
        first, second = Said(), Said()
        await turns.open(first, opening(1))
        turns.detach(first)
        await turns.open(second, opening(1, 0, 2))
        turns._channels[second, 0].state.is_finished = True
        await turns.take(
            second, packing.verify_message(0, 1, VerifyRequest(7, 0, prefix_hash(()), (), ()))
        )
        await anyio.wait_all_tasks_blocked()
        assert second.messages[1:] == [wire.Refused(0, 1, 7, "epoch")]
