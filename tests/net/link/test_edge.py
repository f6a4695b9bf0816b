"""The link by itself: how often it asks, how much it has on its way, whom it blames, what it lets
through to people."""

import time
from contextlib import asynccontextmanager

import anyio
import numpy as np
import pytest
from far import (
    MODEL,
    Slow,
    finish,
    flooding,
    free_port,
    hear,
    honest,
    linked,
    lying,
    serving_judges,
    until,
)
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from bench.proxy import Proxy, Toxics
from streamer.core.decoding.verdict import Verdict, VerifyRequest, prefix_hash
from streamer.core.link import wire
from streamer.core.link.edge_turn import DecodingTerms, RemoteFault, RemoteTurn
from streamer.core.link.patience import Patience
from streamer.core.link.send_window import MAX_SAMPLES, PIECE_SAMPLES
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules
from streamer.net.link.dial import VerifierAddress
from streamer.net.link.edge import EdgeLink
from streamer.net.link.open_link import MAX_PINGS, OpenLink
from streamer.net.link.presence import MAX_TRIES
from streamer.net.link.remote_target import REOPEN_S
from streamer.stages.plumbing.ports import TargetLost

TERMS = DecodingTerms(MODEL.tokenizer, MODEL.language, MODEL.num_ids, Rules(), Sampling())
FIRST = VerifyRequest(1, 0, prefix_hash(()), (), ())


def sound(seconds):
    return (
        np.random.default_rng(0).integers(-9_000, 9_000, int(seconds * 16_000)).astype(np.float32)
        / 32768
    )


@asynccontextmanager
async def dropping(after_s):
    """A verifier that accepts every link and drops it after so long: (port, when links were
    opened)."""
    opened = []

    async def handle(socket):
        opened.append(anyio.current_time())
        with anyio.move_on_after(after_s):
            try:
                async for data in socket:
                    for message in honest(wire.decode_up(data), None):
                        await socket.send(wire.encode(message))
            except ConnectionClosed:
                return
        socket.transport.abort()

    async with serve(handle, "127.0.0.1", 0, compression=None) as server:
        yield server.sockets[0].getsockname()[1], opened


async def test_a_verifier_that_drops_every_link_is_not_stormed():
    """At once, or after the 1.1 s that once counted as success: few links in any 5 s, and ever
    fewer."""
    found = {}

    async def watch(after_s):
        async with dropping(after_s) as (port, opened), linked(port, TERMS):
            started = anyio.current_time()
            await anyio.sleep(10.0)
            found[after_s] = [at - started for at in opened]

    async with anyio.create_task_group() as group:
        for after_s in (0.0, 0.3, 1.1):
            group.start_soon(watch, after_s)
    for after_s, opened in found.items():
        assert 1 < sum(at < 5.0 for at in opened) <= 8, after_s
        assert sum(at >= 5.0 for at in opened) <= 5.0 / (after_s + 1.5) + 1.1, after_s


async def test_a_verifier_that_rejects_every_turn_is_asked_ever_more_seldom():
    opens = []

    def reply(message, _):
        if isinstance(message, wire.Open):
            opens.append(anyio.current_time())
            return [wire.Rejected(message.channel, message.epoch, False, "all sessions are taken")]
        return honest(message, _)

    async with lying(reply) as port, linked(port, TERMS) as link:
        target = link.listen()
        await hear(target, sound(0.1))
        await until(lambda: opens)
        assert target.is_up or target.reopen_at > 0
        await anyio.sleep(5.0)
        assert not target.is_up
        assert link.is_up, "other turns may have a place"
    assert 3 <= len(opens) <= 1 + len(REOPEN_S)
    assert opens[-1] - opens[-2] > opens[1] - opens[0]


async def test_a_slow_verifier_has_little_audio_and_nobody_else_waits_for_it():
    """A turn of 60 s comes at once to a verifier that hears 2 s of it a second. Meanwhile: the
    verifier has less of it unheard than the window; a ping takes no longer than on an idle link;
    another turn is verified at once; and the turn's own deadline, missed before its request could
    leave, is not held against the verifier."""
    judges = []

    def open_judge(turn):
        judges.append((turn, Slow(2 * 16_000 if not judges else 1e9)))
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
            await anyio.sleep(1.5)
            started = time.perf_counter()
            await hear(quick, sound(1.0))
            await finish(quick)
            with anyio.fail_after(5.0):
                assert (await quick.verify(FIRST)).next_id == 5
            assert time.perf_counter() - started < 0.5
            assert not late, "it has half a minute to go"
            assert not slow.has_sent(1)
            slow.failed()
            assert link.is_up, "the verifier was not asked"
            assert not slow.is_up
            assert quick.is_up
            before = link.presence.rtt_s
            link.open_link.ping()
            await until(lambda: link.presence.rtt_s is not before)
            assert link.presence.rtt_s < 0.25
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
        await until(lambda: link.is_up, 1.0)


ESCAPE = "no\x1b[31m \x9b\u202ered\nlines\x07"


async def test_what_a_verifier_says_reaches_people_as_one_plain_line():
    def reply(message, _):
        if isinstance(message, wire.Open):
            return [wire.Rejected(message.channel, message.epoch, True, ESCAPE)]
        return honest(message, _)

    async with lying(reply) as port, linked(port, TERMS) as link:
        target = link.listen()
        with pytest.raises(TargetLost) as lost:
            await target.verify(FIRST)
        assert str(lost.value).isprintable()
        assert "lines" in str(lost.value)

    async def refuse(socket, request):
        return socket.respond(401, ESCAPE)

    async with (
        serve(lambda socket: None, "127.0.0.1", 0, process_request=refuse) as server,
        linked(server.sockets[0].getsockname()[1], TERMS) as link,
    ):
        await link.settled(5.0)
        assert link.presence.lost.isprintable()
        assert "401" in link.presence.lost


@pytest.mark.parametrize(
    ("status", "is_final"), [(400, True), (404, True), (401, True), (503, False), (500, False)]
)
async def test_an_address_that_was_right_is_tried_again(status, is_final):
    """404 and 400 at first are an address that is wrong; after a link they are a moment's, as
    behind a proxy."""
    is_refusing = True

    async def decide(socket, request):
        return socket.respond(status, "no\n") if is_refusing else None

    async def handle(socket):
        try:
            async for data in socket:
                for message in honest(wire.decode_up(data), None):
                    await socket.send(wire.encode(message))
        except ConnectionClosed:
            return

    async with (
        serve(handle, "127.0.0.1", 0, process_request=decide) as server,
        linked(server.sockets[0].getsockname()[1], TERMS) as link,
    ):
        await until(lambda: f"HTTP {status}" in link.presence.trouble)
        assert (link.presence.lost is not None) == is_final
        is_refusing = False
        await until(lambda: link.is_up)
        assert link.presence.lost is None
        is_refusing = True
        link.presence.trouble = ""  # the old one stays until there is another
        for connection in list(server.connections):
            connection.transport.abort()
        await until(lambda: f"HTTP {status}" in link.presence.trouble)
        assert (link.presence.lost is not None) == (status == 401)


def test_a_verdict_before_it_was_asked_for_accepts_nothing():
    turn = RemoteTurn(
        0, bytes(16), DecodingTerms(MODEL.tokenizer, "zh", 1_000, Rules(), Sampling(), runs_on=True)
    )
    turn.attach()
    turn.finish()
    turn.ask(FIRST)
    while turn.pull() is not None:
        pass
    turn.take(wire.Judged(0, 1, 1, 0, 5))
    turn.take(wire.Judged(0, 1, 2, 0, 5))
    with pytest.raises(RemoteFault, match="accepted 3 ids of 0"):
        turn.take(wire.Judged(0, 1, 3, 3, 5))


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
        found.append(wire.unpack_audio(message))
    assert all(len(part) == PIECE_SAMPLES for part in found[:-1])
    assert np.array_equal(np.concatenate(found), samples[: turn.num_samples])


async def test_turns_that_miss_one_outage_are_one_failure():
    """The pause after it is the first, shortest one, however many turns were waiting; a later one
    is another."""
    now = 0.0
    link = EdgeLink(VerifierAddress("ws://127.0.0.1:9", None, None, True), TERMS, lambda: now)
    request = VerifyRequest(1, 0, prefix_hash(()), (), ())
    async with anyio.create_task_group() as group:
        targets = [link.listen() for _ in range(4)]
        for target in targets:
            group.start_soon(target.verify, request)
        await anyio.wait_all_tasks_blocked()
        for target in targets:
            now += 0.5
            target.failed()
        assert link.presence.breaker.num_failures == 1
        now += 1.0
        group.start_soon(targets[0].verify, VerifyRequest(2, 0, prefix_hash(()), (), ()))
        await anyio.wait_all_tasks_blocked()
        targets[0].failed()
        assert link.presence.breaker.num_failures == 2
        group.cancel_scope.cancel()


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
    """At .75 of real time: gated goes on when a live turn would be over, exact when all is
    heard."""
    waited, share = await heard_by_a_slow_one(Patience(5.0, goes_on=True), 3.0, 12_000)
    assert 2.9 < waited < 3.7
    assert 0 < share < 0.9
    waited, share = await heard_by_a_slow_one(Patience(5.0, goes_on=False), 3.0, 12_000)
    assert waited > 3.9
    assert share == 1


async def test_what_is_said_to_a_turn_that_is_over_is_not_taken_for_the_next_ones():
    """The next turn has its channel at once, while replies to the first are on their way: of 1 s,
    and a verdict. It hears less, and gets its own verdict; so too when channels have counted their
    turns for long."""
    judges = []

    def open_judge(turn):
        judges.append(Choosing(5 + len(judges)))
        return judges[-1]

    toxics = Toxics(latency_s=0.05)
    async with (
        serving_judges(open_judge) as (far, _),
        Proxy(far, toxics) as proxy,
        linked(proxy.port, TERMS) as link,
    ):
        await until(lambda: link.is_up)
        for i in range(3):
            over, samples = link.listen(), sound(1.0)
            assert over.turn.channel == 0
            await hear(over, samples)
            await finish(over)
            await until(lambda over=over: over.turn.is_ready)
            with anyio.move_on_after(0.03):  # it is asked, and given up
                await over.verify(FIRST)
            over.close()
            link._epochs[0] += (wire.MAX_EPOCH - 4) * (i == 1)
            await speak_and_ask(link, 0.1, 6 + 2 * i)
        assert link.presence.num_links == 1


async def speak_and_ask(link, seconds, wanted):
    """A turn, and its first verdict."""
    target = link.listen()
    await hear(target, sound(seconds))
    await finish(target)
    with anyio.fail_after(5.0):
        assert (await target.verify(FIRST)).next_id == wanted
    target.close()


class Choosing(Slow):
    """Each verdict is `next_id`, and takes a while."""

    def __init__(self, next_id):
        super().__init__(1e9)
        self.next_id = next_id

    async def judge(self, request, runs_on):
        yield Verdict(request.number, 0, self.next_id)


async def test_a_link_that_is_ended_leaves_no_connection_behind(monkeypatch):
    """Also where nobody answers its goodbye: the way there hangs."""
    run, sockets = OpenLink.run, []

    async def noted(self):
        sockets.append(self._socket)
        await run(self)

    monkeypatch.setattr(OpenLink, "run", noted)
    async with lying(honest) as far, Proxy(far, Toxics()) as proxy:
        async with linked(proxy.port, TERMS) as link:
            await until(lambda: link.is_up)
            proxy.toxics = Toxics(is_hung=True)
        assert [socket.transport.is_closing() for socket in sockets] == [True]


@pytest.mark.parametrize("kind", ["pongs", "verdicts", "opened", "strangers"])
async def test_a_verifier_that_floods_is_cut(kind):
    """It says what nobody asked for, as fast as it can: the link is given up after a few messages,
    and the loop is free for others meanwhile."""
    floods = {
        "pongs": wire.Pong(1),
        "verdicts": wire.Judged(0, 1, 7, 0, 5),
        "opened": wire.OpenedMessage(0, 1, 0, "model"),
        "strangers": wire.HeardMessage(9, 1, 0, False),
    }
    with flooding(floods[kind]) as port:
        async with linked(port, TERMS) as link:
            target = link.listen()
            await hear(target, sound(0.5))
            await until(lambda: link.presence.breaker.num_failures >= 2, 60.0)
            assert link.trouble == "the verifier says more than it was asked"
            assert not link.is_up


async def test_nobody_waits_for_a_verifier_that_was_never_there():
    """A request that waits, and one that comes later, are told after a few tries; when it comes,
    it is asked."""
    port = free_port()
    async with linked(port, TERMS) as link:
        for _ in range(2):
            target = link.listen()
            with anyio.fail_after(5.0), pytest.raises(TargetLost) as lost:
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
