"""The edge's side of the link: connections, the spare, pace, blame, and what people read."""

from functools import partial

import anyio
import numpy as np
import pytest
from far import (
    FIRST,
    Slow,
    answering,
    be,
    free_port,
    hear,
    honest,
    linked,
    lying,
    obliging,
    serving_judges,
    sound,
    speak_and_ask,
    spoken,
)
from patience import PATIENCE_S, until

from bench.proxy import Proxy, Toxics
from streamer.core.link import wire
from streamer.core.link.edge_turn import MAX_UNHEARD_SAMPLES, REOPEN_PAUSES_S, Backoff
from streamer.net.link import client
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


async def test_a_verifier_that_drops_every_connection_is_not_stormed():
    """However many turns wait for it; for connections that live longer, see test_turns.py."""
    opened = []

    async def handle(websocket):
        opened.append(anyio.current_time())
        websocket.transport.abort()

    async with answering(handle) as port, linked(port) as link:
        started = anyio.current_time()
        for _ in range(8):
            await hear(link.listen(), sound(0.1))
        await anyio.sleep(10.0)
    assert 1 < sum(at < started + 5.0 for at in opened) <= 4 * 9  # a few for each turn
    assert sum(at >= started + 5.0 for at in opened) <= 5.0 / 1.5 + 1.1


async def test_a_verifier_that_rejects_a_turn_is_asked_ever_more_seldom(monkeypatch):
    """The turn opens another connection after each no; a verdict ends the count."""
    nos, told = [], iter([*[True] * 4, False])

    class Noting(Backoff):
        def pause_s(self, now, chance=0.5):
            nos.append(super().pause_s(now))
            return 0.0

    def reply(message, chance):
        is_no = isinstance(message, wire.Open) and next(told, False)
        return [wire.Rejected(False, "full")] if is_no else obliging(message, chance)

    monkeypatch.setattr(client, "Backoff", Noting)
    async with lying(reply) as port, linked(port) as link:
        target = await spoken(link, 0.1)
        with anyio.fail_after(PATIENCE_S):
            assert (await target.verify(FIRST)).next_id == 5
            told = iter([True])
            for socket in list(link._taken):
                socket.transport.abort()
            await until(lambda: len(nos) == 5)
        target.close()
    assert nos == [*REOPEN_PAUSES_S, REOPEN_PAUSES_S[0]]


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


@pytest.mark.parametrize(
    ("status", "is_final"), [(400, True), (404, True), (401, True), (503, False), (500, False)]
)
async def test_an_address_that_was_right_is_tried_again(status, is_final):
    """404 and 400 are final at first only: the address may be that of a proxy."""
    is_refusing, open_ones = True, []

    async def decide(websocket, request):
        return websocket.respond(status, "no\n") if is_refusing else None

    async def handle(websocket):
        open_ones.append(websocket)
        await websocket.wait_closed()

    async with answering(handle, decide) as port, linked(port) as link:
        await until(lambda: f"HTTP {status}" in link.trouble)
        assert (link.lost is not None) == is_final
        is_refusing = False
        await until(lambda: link.is_up)
        assert link.lost is None
        is_refusing = True
        link.trouble = ""  # the old one stays until there is another
        for websocket in open_ones:
            websocket.transport.abort()
        await until(lambda: f"HTTP {status}" in link.trouble)
        assert (link.lost is not None) == (status == 401)


async def test_a_full_verifier_is_there_for_the_turns_that_it_serves():
    """The next spare is refused; turns in hand are verified all the same."""
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
            assert 0 < server.lag_s <= MAX_UNHEARD_SAMPLES / 16_000
            assert not late, "it has minutes to go"
            assert not slow.has_sent(1)
            slow.failed()
            assert link.is_up, "the verifier was not asked"
            assert (slow.is_up, quick.is_up) == (False, True)
            judges[0][1].samples_per_s = 1e9
            await until(lambda: late)
            assert slow.is_up, "it has caught up"
            group.cancel_scope.cancel()
        slow.failed()
        assert not link.is_up, "now it is the verifier that is late"


async def test_a_thin_link_is_not_blamed_on_the_verifier(monkeypatch):
    """A request waits at 15 kB/s after the turn's audio; a verifier that stops is blamed."""
    monkeypatch.setattr(client, "STUCK_S", 1.5 * PATIENCE_S)
    async with serving_judges() as (far, _), Proxy(far) as proxy, linked(proxy.port) as link:
        await until(lambda: link.is_up)
        proxy.toxics = Toxics(bandwidth=15_000)
        target = await spoken(link, 1.9)
        for is_first in (True, False):
            async with anyio.create_task_group() as group:
                group.start_soon(target.verify, FIRST)
                await until(lambda: target.has_sent(1))
                await until(lambda is_first=is_first: is_first or target.turn.num_heard)
                assert not target.turn.is_ready
                target.failed()
                assert link.is_up, "it moves"
                assert not target.is_up, "the turn has to catch up"
                group.cancel_scope.cancel()
        proxy.toxics = Toxics(is_hung=True)
        monkeypatch.setattr(client, "STUCK_S", 0.0)
        async with anyio.create_task_group() as group:
            group.start_soon(target.verify, FIRST)
            await anyio.wait_all_tasks_blocked()
            target.failed()
            assert not link.is_up
            group.cancel_scope.cancel()


async def test_a_verifier_that_hangs_is_noticed_by_its_spare():
    async with serving_judges() as (far, _), Proxy(far) as proxy, linked(proxy.port) as link:
        await until(lambda: link.is_up)
        proxy.toxics = Toxics(is_hung=True)
        await until(lambda: "no answer for 5 s" in link.trouble)
        assert not link.is_up
        proxy.toxics = Toxics()
        await until(lambda: link.is_up)


@pytest.mark.parametrize(("goes_on", "waits_s", "share"), [(True, 2.9, 0.9), (False, 7.8, 1.0)])
async def test_a_verifier_slower_than_speech_is_waited_for(goes_on, waits_s, share):
    """Gated until a live turn would be over, exact until all is heard."""
    async with (
        serving_judges(lambda turn: Slow(6_000)) as (port, _),
        linked(port, goes_on=goes_on) as link,
    ):
        await link.settled(2.0)
        target, started = link.listen(), anyio.current_time()
        await hear(target, sound(3.0))
        await target.prefilled()
        assert waits_s < anyio.current_time() - started < (7.0 if goes_on else PATIENCE_S)
        found = target.turn.num_heard / target.turn.num_samples
        assert 0 < found < share if goes_on else found == share
        assert target.is_up, "it moves, so it is asked, as in a live turn"


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
            await speak_and_ask(link, 0.1, 5)


async def test_a_verifier_whose_model_changes_between_turns_is_told():
    """As one plain line; the same model is no news."""
    models = ["model a", "model a", "model\x1b[2J b\n", "model a", "model a"]
    opened = iter(models)

    def reply(message, chance):
        if isinstance(message, wire.Open):
            return [wire.Opened(0, next(opened))]
        return honest(message, chance)

    found = []
    async with lying(reply) as port, linked(port) as link:
        link._on_model = found.append
        await link.settled(5.0)
        for _ in models:
            target = link.listen()
            await hear(target, np.ones(1_600, np.float32))
            await until(lambda target=target: target.turn.num_heard == 1_600)
            target.close()
    assert len(found) == 3, found
    assert found[::2] == ["model a", "model a"]
    assert found[1].isprintable()


@pytest.mark.parametrize(
    ("url", "address", "dialled"),
    [
        ("ws://h", f"ws://h:{PORT}", f"ws://h:{PORT}/v1/verify?wire=5&edge=e"),
        ("wss://u:p@h/", f"wss://u:p@h:{PORT}/", f"wss://u:p@h:{PORT}/v1/verify?wire=5&edge=e"),
        ("ws://[::1]", f"ws://[::1]:{PORT}", f"ws://[::1]:{PORT}/v1/verify?wire=5&edge=e"),
        ("ws://h:", f"ws://h:{PORT}", f"ws://h:{PORT}/v1/verify?wire=5&edge=e"),
        ("ws://h:1/x?a=b", "ws://h:1/x?a=b", "ws://h:1/x?a=b&wire=5&edge=e"),
    ],
)
def test_the_address_of_a_verifier(url, address, dialled):
    verifier = VerifierAddress(url)
    assert verifier.address == address
    assert verifier.dialled_by("e") == dialled
    assert "p@" not in verifier.name
