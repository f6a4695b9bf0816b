"""The link by itself: how often it asks, how much it has on its way, whom it blames, what it lets
through to people."""

from contextlib import asynccontextmanager

import anyio
import pytest
from edge_turns import FIRST, TERMS, sound, speak_and_ask
from far import (
    MODEL,
    Slow,
    be_honest,
    finish,
    flooding,
    hear,
    honest,
    linked,
    lying,
    serving_judges,
    until,
)
from websockets.asyncio.server import serve

from bench.proxy import Proxy, Toxics
from streamer.core.decoding.verdict import Verdict, VerifyRequest, prefix_hash
from streamer.core.link import wire
from streamer.core.link.decoding_terms import DecodingTerms
from streamer.core.link.edge_turn import RemoteTurn
from streamer.core.link.plausible import RemoteFault
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules
from streamer.net.link.dial import VerifierAddress
from streamer.net.link.edge import EdgeLink
from streamer.net.link.remote_target import REOPEN_S
from streamer.stages.ports import TargetLost


@asynccontextmanager
async def dropping(after_s):
    """A verifier that accepts every link and drops it after so long: (port, when links were
    opened)."""
    opened = []

    async def handle(socket):
        opened.append(anyio.current_time())
        with anyio.move_on_after(after_s):
            await be_honest(socket)
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

    async with (
        serve(be_honest, "127.0.0.1", 0, process_request=decide) as server,
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


class Choosing(Slow):
    """Each verdict is `next_id`, and takes a while."""

    def __init__(self, next_id):
        super().__init__(1e9)
        self.next_id = next_id

    async def judge(self, request, runs_on):
        yield Verdict(request.number, 0, self.next_id)


async def test_a_link_that_is_ended_leaves_no_connection_behind():
    """Also where nobody answers its goodbye: the way there hangs."""
    async with lying(honest) as far, Proxy(far, Toxics()) as proxy:
        async with linked(proxy.port, TERMS) as link:
            await until(lambda: link.is_up)
            transport = link.open_link.socket.transport
            proxy.toxics = Toxics(is_hung=True)
        assert transport.is_closing()


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
