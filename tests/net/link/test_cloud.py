"""The edge's side of the link: connections, the spare, pace, blame, and what people read."""

from functools import partial

import anyio
import pytest
from far import (
    FIRST,
    Slow,
    answering,
    be,
    free_port,
    hear,
    linked,
    lying,
    obliging,
    serving_judges,
    sound,
    spoken,
)
from msgspec.structs import replace
from patience import PATIENCE_S, until

from bench.proxy import Proxy, Toxics
from streamer.core.link import wire
from streamer.net.link.dial import PORT, VerifierAddress
from streamer.stages.ports import TargetLost


async def test_a_turn_has_a_websocket_of_its_own_and_never_waits_for_a_handshake():
    """One is spare when a turn begins; each is closed with its turn."""
    async with serving_judges() as (port, server), linked(port) as link:
        await until(lambda: link.is_up)
        assert len(server._links) == 1
        for _ in range(3):
            await until(lambda: link._spare is not None)
            spare, target = link._spare, link.listen()
            await hear(target, sound(0.1))
            await until(lambda: len(link._taken) == 1)
            assert link._spare is not spare, "it is the turn's"
            await until(lambda: len(server._links) == 2)
            target.close()
            await until(lambda: len(server._links) == 1)
            assert not server._turns, "its slot is free at once"


ESCAPE = "no\x1b[31m \x9b\u202ered\nlines\x07"


async def test_words_of_a_verifier_reach_people_as_one_plain_line():
    async with lying(lambda *_: [wire.Rejected(True, ESCAPE)]) as port, linked(port) as link:
        with pytest.raises(TargetLost) as lost:
            await link.listen().verify(FIRST)
        assert str(lost.value).isprintable()
        assert "lines" in str(lost.value)

    async def refuse(websocket, request):
        return websocket.respond(401, ESCAPE)

    async with answering(None, refuse) as port, linked(port) as link:
        await link.settled(5.0)
        assert link.lost.isprintable()
        assert "401" in link.lost


async def test_a_full_verifier_is_there_for_the_turns_that_it_serves():
    num_asked = 0

    async def decide(websocket, request):
        nonlocal num_asked
        num_asked += 1
        return websocket.respond(503, "full\n") if num_asked > 1 else None

    async with answering(partial(be, obliging), decide) as port, linked(port) as link:
        await until(lambda: link.is_up)
        target = await spoken(link, 0.1)
        await until(lambda: num_asked > 2)
        assert (link.is_up, target.is_up) == (True, True)
        assert (await target.verify(FIRST)).next_id == 5
        target.close()
        await until(lambda: not link.is_up)
        assert link.trouble == "HTTP 503 (full)"


async def test_a_door_that_says_404_for_a_moment_ends_no_turn():
    """As a balancer that is started anew: where a connection has been up, the address is right."""
    sockets, status = set(), None

    async def handle(websocket):
        sockets.add(websocket)
        await be(obliging, websocket)

    async def decide(websocket, request):
        return websocket.respond(status, "no such path\n") if status else None

    async with answering(handle, decide) as port, linked(port) as link:
        await until(lambda: link.is_up)
        target = await spoken(link, 0.1)
        assert (await target.verify(FIRST)).next_id == 5
        status = 404
        for websocket in sockets:
            websocket.transport.abort()
        await until(lambda: "404" in link.trouble)
        status = None
        with anyio.fail_after(PATIENCE_S):
            assert (await target.verify(replace(FIRST, number=2))).next_id == 5


async def test_a_verifier_that_floods_an_edge_is_left():
    def flood(message, chance):
        return [wire.Opened(0, "model"), *[wire.Heard(0, False)] * 5_000]

    async with lying(flood) as port, linked(port) as link:
        await spoken(link, 0.1)
        await until(lambda: "more messages than a turn needs" in link.trouble)


async def test_a_slow_verifier_holds_little_audio_and_delays_no_other_turn():
    """It hears 60 s at a quarter of real time, and is not blamed for what was never sent."""
    judges = []

    def open_judge(turn):
        judges.append((turn, Slow(4_000 if not judges else 1e9)))
        return judges[-1][1]

    async def gather(found, target):
        found.append(await target.verify(FIRST))

    async with serving_judges(open_judge) as (port, server), linked(port) as link:
        await until(lambda: link.is_up)
        slow, late = await spoken(link, 60.0), []
        async with anyio.create_task_group() as group:
            group.start_soon(gather, late, slow)
            await until(lambda: judges and judges[0][1].num_heard)
            quick = await spoken(link, 1.0)
            with anyio.fail_after(PATIENCE_S):
                assert (await quick.verify(FIRST)).next_id == 5
            assert server.lag_s > 0
            assert not late, "it has minutes to go"
            slow.failed()
            assert link.is_up, "the verifier was not asked"
            assert (slow.is_up, quick.is_up) == (False, True)
            judges[0][1].samples_per_s = 1e9
            await until(lambda: late)
            assert slow.is_up, "it has caught up"
            group.cancel_scope.cancel()
        slow.failed()
        assert not link.is_up, "now it is the verifier that is late"


async def test_a_verifier_that_hangs_is_noticed_by_its_spare():
    async with serving_judges() as (far, _), Proxy(far) as proxy, linked(proxy.port) as link:
        await until(lambda: link.is_up)
        proxy.toxics = Toxics(is_hung=True)
        await until(lambda: "no answer within 5 s" in link.trouble)
        assert not link.is_up
        proxy.toxics = Toxics()
        await until(lambda: link.is_up)


async def test_a_recording_waits_for_a_verifier_that_moves():
    """One slower than speech hears all of it; one that hears nothing costs one budget."""
    async with (
        serving_judges(lambda turn: Slow(6_000)) as (port, _),
        linked(port, budget_s=PATIENCE_S) as link,
    ):
        await link.settled(2.0)
        target = await spoken(link, 2.0)
        await target.prefilled()
        assert target.is_ready
    async with lying(lambda *_: []) as port, linked(port, budget_s=0.2) as link:
        await link.settled(2.0)
        target = await spoken(link, 2.0)
        with anyio.fail_after(PATIENCE_S):
            await target.prefilled()


async def test_no_turn_waits_for_a_verifier_that_was_never_there():
    """A request that waits, and a later one, end after a few tries; when it comes, it is asked."""
    port = free_port()
    async with linked(port) as link:
        for _ in range(2):
            target = link.listen()
            with anyio.fail_after(PATIENCE_S), pytest.raises(TargetLost) as lost:
                await target.verify(FIRST)
            target.close()
            assert str(lost.value) == (
                f"the verifier at ws://127.0.0.1:{port} is not there (Connection refused)"
            )
        async with serving_judges(port=port):
            await until(lambda: link.is_up)
            target = await spoken(link, 0.1)
            with anyio.fail_after(PATIENCE_S):
                assert (await target.verify(FIRST)).next_id == 5


@pytest.mark.parametrize(
    ("url", "address", "dialled"),
    [
        ("ws://h", f"ws://h:{PORT}", f"ws://h:{PORT}/v1/verify?wire=5&edge=e"),
        (
            "wss://u:p@[::1]/",
            f"wss://u:p@[::1]:{PORT}/",
            f"wss://u:p@[::1]:{PORT}/v1/verify?wire=5&edge=e",
        ),
        ("ws://h:1/x?a=b", "ws://h:1/x?a=b", "ws://h:1/x?a=b&wire=5&edge=e"),
    ],
)
def test_the_address_of_a_verifier(url, address, dialled):
    verifier = VerifierAddress(url)
    assert verifier.address == address
    assert verifier.dialled_by("e") == dialled
    assert "p@" not in verifier.name
