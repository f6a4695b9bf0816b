"""The verifier's server: who may connect, places, resumed turns, and its end."""

import contextlib
import random
import signal

import anyio
import msgspec
import pytest
from far import QUERY, Slow, opening, raw, say, serving_judges, told, verifying, wire_rules
from msgspec.structs import replace
from patience import EXIT_S, PATIENCE_S, until
from processes import memory_mb
from speech import SAMPLES
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from wire import http, until_metric

from streamer import Describer
from streamer.core.decoding.plan import Verdict, VerifyRequest, prefix_hash
from streamer.core.link import wire
from streamer.model.checkpoint.card import read_card
from streamer.model.thinker import EMBEDDED
from streamer.net.link.server import SPARE_LINKS

REQUEST = VerifyRequest(1, 0, prefix_hash(()), (), ())
SILENCE = wire.Audio(0, bytes(32_000), False)
PHRASES = read_card(EMBEDDED / "cloud").phrases


def url_of(port):
    return f"ws://127.0.0.1:{port}"


async def test_text_giants_garbage_and_other_messages_first_are_refused():
    async with serving_judges() as (port, server):
        giant, first = bytes(wire.MAX_MESSAGE_BYTES + 1), wire.encode(SILENCE)
        for messages in (["text"], [giant], [first], [wire.encode(opening()), b"\x93garbage"]):
            async with raw(url_of(port)) as ws:
                with contextlib.suppress(ConnectionClosed):
                    for message in messages:
                        await ws.send(message)
                with anyio.fail_after(PATIENCE_S):
                    await ws.wait_closed()
                assert ws.close_code in (1008, 1009)
        assert all(turn.socket is None for turn in server._turns.values())


async def test_a_key_has_its_share_of_turns_and_websockets():
    """A key resumes its own turns alone."""

    def by(key):
        header = {"Authorization": f"Bearer {key}"}
        return connect(f"{url_of(port)}{wire.PATH}{QUERY}", additional_headers=header)

    async with (
        serving_judges(api_key="a,b", max_per_key=1) as (port, _),
        contextlib.AsyncExitStack() as stack,
    ):
        first, second, other = [await stack.enter_async_context(by(key)) for key in "aab"]
        await say(first, opening())
        await told(first, wire.Opened)
        await say(second, opening(b"t" * 16))
        assert "of this key" in (await told(second)).reason
        await say(other, opening())
        assert "another key" in (await told(other)).reason
        await second.wait_closed()
        for _ in range(SPARE_LINKS + 1):
            await stack.enter_async_context(by("a"))
        with pytest.raises(InvalidStatus) as refused:
            await by("a")
        assert refused.value.response.status_code == 503
        await stack.enter_async_context(by("b"))


async def test_an_older_edge_is_refused_with_the_way_out():
    """Version 4 names no version in the address."""
    async with serving_judges() as (port, _):
        for query, named in (("", "an older one"), ("?wire=6", "6")):
            with pytest.raises(InvalidStatus) as refused:
                await connect(url_of(port) + wire.PATH + query)
            told = f"this verifier speaks version 5 of the link, the edge {named}; update the older"
            assert refused.value.response.status_code == 400
            assert refused.value.response.body.decode() == f"{told} of the two\n"


async def test_a_judge_that_fails_ends_one_turn():
    class Broken(Slow):
        async def finish(self):
            raise RuntimeError("the model fell over")

    judges = [Broken(), Slow()]
    left = iter(judges)
    async with (
        serving_judges(lambda turn: next(left)) as (port, server),
        raw(url_of(port)) as ws,
        raw(url_of(port)) as other,
    ):
        await say(ws, opening())
        await told(ws)
        await say(other, opening(b"other" * 3 + b"x"), SILENCE, wire.Finish(16_000, {}), REQUEST)
        await say(ws, wire.Finish(0, {}))
        rejected = await told(ws, wire.Rejected)
        assert (rejected.is_final, "internal error" in rejected.reason) == (True, True)
        assert (await told(other, Verdict)).next_id == 5
        assert len(server._turns) == 1
    assert all(judge.is_closed for judge in judges)


async def test_a_turn_may_be_idle_only_while_there_is_nothing_to_do(monkeypatch):
    """A window that takes longer to hear does not end it."""
    monkeypatch.setattr("streamer.net.link.server.MAX_TURN_IDLE_S", 1.0)
    async with serving_judges(lambda turn: Slow(8_000)) as (port, _), raw(url_of(port)) as ws:
        await say(ws, opening(), SILENCE, wire.Finish(16_000, {}), REQUEST)
        assert (await told(ws, Verdict)).next_id == 5
        assert "nothing came" in (await told(ws, wire.Rejected)).reason


async def test_an_answer_decoded_alone_is_said_again_from_anywhere(verifier, tokenizer):
    """After a cut the verifier is further on than its edge, and says again what was lost."""
    rules = wire_rules(PHRASES)
    opened, whole = opening(b"decodes alone   ", tokenizer=tokenizer, rules=rules), []
    for number in (1, 1, 4):
        ids = whole[: number - 1]
        async with raw(verifier) as ws:
            await say(ws, opened, SILENCE, wire.Finish(16_000, {}))
            await say(ws, VerifyRequest(number, len(ids), prefix_hash(ids), (), (), True))
            found = [await told(ws, Verdict) for _ in range(8)]
            ws.transport.abort()
        assert [one.number for one in found] == list(range(number, number + 8))
        assert all((one.n_accepted, len(one.log_probs)) == (0, 1) for one in found)
        said = ids + [one.next_id for one in found]
        assert said[: len(whole)] == whole[: len(said)]
        whole = max(whole, said, key=len)


async def cut(ws):
    ws.transport.abort()
    await ws.wait_closed()


async def hold(port, num, server):
    """Turns whose websocket was cut."""
    for i in range(num):
        async with raw(url_of(port)) as ws:
            await say(ws, opening(bytes([i]) * 16), wire.Audio(0, bytes(640), False))
            await told(ws, wire.Heard)
            await cut(ws)
        await until(lambda i=i: server.num_held == i + 1)


async def test_many_that_come_at_once_never_take_more_than_there_is():
    """Held turns make room, each once; a turn without a place is rejected, and may come again."""
    judges, rejected = [], []

    def open_judge(turn):
        judges.append(Slow())
        assert sum(not judge.is_closed for judge in judges) <= 4
        return judges[-1]

    async with serving_judges(open_judge, max_sessions=4) as (port, server):
        await hold(port, 4, server)

        async def come(i, over):
            async with raw(url_of(port)) as ws:
                await say(ws, opening(bytes([100 + i]) * 16))
                if isinstance(found := await told(ws), wire.Rejected):
                    rejected.append(found)
                await over.wait()

        async with anyio.create_task_group() as group:
            over = anyio.Event()
            for i in range(12):
                group.start_soon(come, i, over)
            await until(lambda: len(rejected) == 8)
            reasons = {(one.is_final, one.reason) for one in rejected}
            assert reasons == {(False, "all 4 sessions are taken")}
            assert (server.num_held, server._admission.num_sessions) == (0, 4)
            over.set()
    assert all(judge.is_closed for judge in judges)
    assert server._admission.num_sessions == 0


async def test_health_and_a_clean_end(wanted):
    """A turn in hand when SIGTERM comes is answered; spare websockets close at once; exit 0."""
    with verifying("--max-sessions", 1) as (url, process):
        async with (
            raw(url) as spare,
            Describer.open(mode="exact", cloud=url) as describer,
            describer.session() as session,
        ):
            pcm = SAMPLES[0].read_bytes()[44:]
            await session.feed(pcm[:64_000])
            await until_metric(url, "streamer_sessions 1.0")
            status = msgspec.json.decode(http(url, "/statusz")[1])
            assert (status["taken"], status["limit"]) == (1, 1)
            assert http(url, "/readyz")[0] == 200
            process.send_signal(signal.SIGTERM)
            await until(lambda: http(url, "/readyz")[0] == 503)
            await spare.wait_closed()
            assert spare.close_code == 1012
            await session.feed(pcm[64_000:])
            await session.commit()
            events = [event async for event in session]
            assert list(events[-1].ids) == wanted["exact"][SAMPLES[0].name]["ids"]
        assert await anyio.to_thread.run_sync(lambda: process.wait(EXIT_S)) == 0


@pytest.mark.parametrize("times", [5, pytest.param(50, marks=pytest.mark.long)])
async def test_edges_cut_off_at_any_moment_leave_nothing(wanted, times, tokenizer):
    chance, sizes = random.Random(times), []
    opened = opening(tokenizer=tokenizer, rules=wire_rules(PHRASES))
    with verifying("--max-sessions", 2, "--resume-s", 0) as (url, process):
        for i in range(times):
            data = SAMPLES[i % len(SAMPLES)].read_bytes()[44:]
            pieces = [
                wire.Audio(at // 2, data[at : at + 32_000], False)
                for at in range(0, len(data), 32_000)
            ]
            async with raw(url) as edge:
                await say(edge, opened, *pieces)
                await say(edge, wire.Finish(len(data) // 2, {}), replace(REQUEST, runs_on=True))
                await anyio.sleep(chance.uniform(0.0, 0.5))
                edge.transport.abort()
            await until_metric(url, "streamer_sessions 0.0")
            sizes.append(memory_mb(process))
        await until_metric(url, "streamer_links 0.0")
        async with Describer.open(mode="exact", cloud=url) as describer:
            found = await describer.describe(SAMPLES[0])
            assert list(found.ids) == wanted["exact"][SAMPLES[0].name]["ids"]
    settled = sizes[len(sizes) // 5 :]
    assert max(settled) - settled[0] < 16
