"""A verifier that is slow, or hears slowly: how much it is sent, and how long it is waited for."""

from __future__ import annotations

import anyio
import numpy as np
import pytest
from edge_turns import FIRST, TERMS, sound, speak_and_ask
from far import Slow, finish, free_port, hear, honest, linked, lying, serving_judges, until
from patience import PATIENCE_S

from streamer.core.link import packing, wire
from streamer.core.link.edge_turn import RemoteTurn
from streamer.core.link.patience import Patience
from streamer.core.link.send_window import MAX_SAMPLES, PIECE_SAMPLES
from streamer.net.link.open_link import MAX_PINGS
from streamer.net.link.presence import MAX_TRIES
from streamer.stages.ports import TargetLost


async def test_a_slow_verifier_has_little_audio_and_nobody_else_waits_for_it():
    """A turn of 60 s comes at once to a verifier that hears a quarter of it in its time.
    Meanwhile: the verifier has less of it unheard than the window; neither a ping nor another turn
    waits until it has heard what it has; and the turn's own deadline, missed before its request could
    leave, is not held against the verifier."""
    judges = []

    def open_judge(turn):
        judges.append((turn, Slow(4_000 if not judges else 1e9)))
        return judges[-1][1]

    async with serving_judges(open_judge) as (port, _), linked(port, TERMS) as link:
        slow, quick = link.listen(), link.listen()
        await until(lambda: link.is_up)
        await hear(slow, sound(60.0))
        await finish(slow)
        most, late = 0, []

        async def watch():
            nonlocal most
            while True:
                most = max(
                    [most, *(turn.num_samples - judge.num_heard for turn, judge in judges[:1])]
                )
                await anyio.sleep(0.01)

        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            group.start_soon(gather, late, slow)
            await until(lambda: judges and judges[0][1].num_heard)
            before = judges[0][1].num_heard
            await hear(quick, sound(1.0))
            await finish(quick)
            with anyio.fail_after(PATIENCE_S):
                assert (await quick.verify(FIRST)).next_id == 5
            assert judges[0][1].num_heard - before <= 4 * PIECE_SAMPLES
            assert not late, "it has minutes to go"
            assert not slow.has_sent(1)
            slow.failed()
            assert link.is_up, "the verifier was not asked"
            assert not slow.is_up
            assert quick.is_up
            before = link.presence.rtt_s
            link.open_link.ping()
            await until(lambda: link.presence.rtt_s is not before)
            assert link.presence.rtt_s < 1.0
            judges[0][1].samples_per_s = 1e9
            await until(lambda: late)
            assert slow.is_up, "it has caught up"
            group.cancel_scope.cancel()
        assert 0 < most <= MAX_SAMPLES + PIECE_SAMPLES
        assert link.open_link.window.num_unheard == 0
        slow.failed()
        assert not link.is_up, "now it is the verifier that is late"


async def gather(found, target):
    found.append(await target.verify(FIRST))


async def test_the_newest_ping_is_heard_though_none_before_it_was_answered():
    tokens = []

    def reply(message, _):
        if isinstance(message, wire.Ping):
            tokens.append(message.token)
            return [wire.Pong(message.token)] if len(tokens) > 2 * MAX_PINGS else []
        return honest(message, _)

    async with lying(reply) as port, linked(port, TERMS) as link:
        await until(lambda: link.is_linked)
        while len(tokens) <= 2 * MAX_PINGS:
            assert not link.is_up
            assert len(link.open_link._pings) <= MAX_PINGS
            link.open_link.ping()
            await anyio.sleep(0.005)
        await until(lambda: link.is_up)


@pytest.mark.parametrize("piece", [1, 320, 1_600, 100_000])
def test_pieces_that_wait_go_together(piece):
    """However the audio came: messages of half a second, together the turn, bit for bit."""
    samples, turn, found = sound(2.2), RemoteTurn(0, bytes(16), TERMS), []
    for at in range(0, len(samples) if piece > 1 else 3_000, piece):
        turn.hear(samples[at : at + piece])
    turn.attach()
    assert isinstance(turn.pull(), wire.Open)
    assert turn.pull(0) is None
    while (message := turn.pull(1_000_000)) is not None:
        assert message.start == sum(map(len, found))
        found.append(packing.unpack_audio(message))
    assert all(len(part) == PIECE_SAMPLES for part in found[:-1])
    assert np.array_equal(np.concatenate(found), samples[: turn.num_samples])


async def heard_by_a_slow_one(patience, seconds, samples_per_s):
    """(how long a file of so many seconds waited, how much of it was heard by then)"""
    async with (
        serving_judges(lambda turn: Slow(samples_per_s)) as (port, _),
        linked(port, TERMS, patience=patience) as link,
    ):
        await link.settled(2.0)
        target = link.listen()
        started = anyio.current_time()
        await hear(target, sound(seconds))
        await target.prefilled()
        waited = anyio.current_time() - started
        share = target.turn.num_prefilled / target.turn.num_samples
        assert target.is_up, "it moves, so it is asked, as in a live turn"
        target.close()
        return waited, share


async def test_a_verifier_slower_than_speech_has_the_time_of_a_live_turn_or_all_that_it_needs():
    """At 3/8 of real time: gated goes on when a live turn would be over, exact when all is
    heard."""
    waited, share = await heard_by_a_slow_one(Patience(5.0, goes_on=True), 3.0, 6_000)
    assert 2.9 < waited < 7.0
    assert 0 < share < 0.9
    waited, share = await heard_by_a_slow_one(Patience(5.0, goes_on=False), 3.0, 6_000)
    assert waited > 7.8
    assert share == 1


async def test_nobody_waits_for_a_verifier_that_was_never_there():
    """A request that waits, and one that comes later, are told after a few tries; when it comes,
    it is asked."""
    port = free_port()
    async with linked(port, TERMS) as link:
        for _ in range(2):
            target = link.listen()
            with anyio.fail_after(PATIENCE_S), pytest.raises(TargetLost) as lost:
                await target.verify(FIRST)
            target.close()
            assert str(lost.value) == (
                f"the verifier at ws://127.0.0.1:{port} is not there (Connection refused)"
            )
        async with serving_judges(lambda turn: Slow(1e9), port):
            await until(lambda: link.is_up)
            await speak_and_ask(link, 0.1, 5)


async def test_one_that_was_there_is_waited_for_once():
    """A turn that misses it waits for as long as it may: it may be starting again. Those after it
    are told at once, until it is there again."""
    port = free_port()
    async with linked(port, TERMS) as link:
        async with serving_judges(lambda turn: Slow(1e9), port):
            await until(lambda: link.is_up)
        await until(lambda: not link.is_linked)
        await until(lambda: link.presence._num_tries >= MAX_TRIES)
        first = link.listen()
        with anyio.move_on_after(0.05) as budget:
            await first.verify(FIRST)
        assert budget.cancelled_caught
        async with anyio.create_task_group() as group:
            group.start_soon(first.verify, FIRST)
            await anyio.wait_all_tasks_blocked()
            first.failed()  # its budget is over
            group.cancel_scope.cancel()
        first.close()
        second = link.listen()
        with pytest.raises(TargetLost, match="is not there"):
            await second.verify(FIRST)
        second.close()
        async with serving_judges(lambda turn: Slow(1e9), port):
            await until(lambda: link.is_up, 15.0)
            await speak_and_ask(link, 0.1, 5)
