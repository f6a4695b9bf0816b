"""The verifier's server: who may connect, places, turns that are resumed, its end; a turn's two ends."""

import asyncio
import contextlib
import random
import signal

import anyio
import msgspec
import pytest
from far import FIRST, Slow, opening, raw, say, serving_judges, sound, told, verifying
from msgspec.structs import replace
from processes import EXIT_S, PATIENCE_S, memory_mb, until
from speech import SAMPLES
from toy_parts import MODEL, VOCABULARY, ToyJudge, ask, said_by, turn_without_socket
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from wire import http, until_metric

from streamer import Describer
from streamer.core.audio.turn import AROUND_SAMPLES
from streamer.core.decoding.plan import Refusal, Verdict, VerifyRequest, prefix_hash
from streamer.core.link import wire
from streamer.core.rules.settings import Rules
from streamer.model.checkpoint.card import Tokenizer, read_card
from streamer.model.thinker import EMBEDDED
from streamer.net.link.client import VERDICT_PAUSES_S, Backoff
from streamer.net.link.server import SPARE_LINKS, Broken, ServedTurn
from streamer.net.link.target import RemoteFault

SILENCE = wire.Audio(0, bytes(32_000), False)
CLOUD = EMBEDDED / "cloud"


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
        assert all(turn.connection is None for turn in server._turns.values())


async def test_a_key_has_its_share_of_turns_and_websockets():
    """A key resumes its own turns alone."""
    async with (
        serving_judges(api_key="a,b", max_per_key=1) as (port, _),
        contextlib.AsyncExitStack() as stack,
    ):
        opened = [await stack.enter_async_context(raw(url_of(port), key)) for key in "aab"]
        first, second, other = opened
        await say(first, opening())
        await told(first, wire.Heard)
        await say(second, opening(b"t" * 16))
        assert "of this key" in (await told(second)).reason
        await say(other, opening())
        assert "another key" in (await told(other)).reason
        await second.wait_closed()
        for _ in range(SPARE_LINKS + 1):
            await stack.enter_async_context(raw(url_of(port), "a"))
        with pytest.raises(InvalidStatus) as refused:
            await raw(url_of(port), "a")
        assert refused.value.response.status_code == 503
        await stack.enter_async_context(raw(url_of(port), "b"))


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
        async def finish(self, weights):
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
        await say(other, opening(b"other" * 3 + b"x"), SILENCE, wire.Finish(16_000, {}), FIRST)
        await say(ws, wire.Finish(0, {}))
        rejected = await told(ws, wire.Rejected)
        assert (rejected.is_final, "internal error" in rejected.reason) == (True, True)
        assert (await told(other, Verdict)).next_id == 5
        await say(other, replace(FIRST, number=7))
        assert (await told(other)).number == 7, "one verdict for each request"
        assert len(server._turns) == 1
    assert all(judge.is_closed for judge in judges)


async def test_a_turn_may_be_idle_only_while_there_is_nothing_to_do(monkeypatch):
    """A window that takes longer to hear does not end it."""
    monkeypatch.setattr("streamer.net.link.server.MAX_TURN_IDLE_S", 1.0)
    async with serving_judges(lambda turn: Slow(8_000)) as (port, _), raw(url_of(port)) as ws:
        await say(ws, opening(), SILENCE, wire.Finish(16_000, {}), FIRST)
        assert (await told(ws, Verdict)).next_id == 5
        assert "nothing came" in (await told(ws, wire.Rejected)).reason


async def test_many_that_come_at_once_never_take_more_than_there_is():
    """Held turns make room, each once; a turn without a place is rejected, and may come again."""
    judges, rejected = [], []

    def open_judge(turn):
        judges.append(Slow())
        assert sum(not judge.is_closed for judge in judges) <= 4
        return judges[-1]

    async with serving_judges(open_judge, max_sessions=4) as (port, server):
        for i in range(4):  # turns whose websocket is cut
            async with raw(url_of(port)) as ws:
                await say(ws, opening(bytes([i]) * 16), wire.Audio(0, bytes(640), False))
                await told(ws, wire.Heard)
                ws.transport.abort()
                await ws.wait_closed()
            await until(lambda i=i: server.num_held == i + 1)
            assert f"\nstreamer_sessions_held {i + 1}.0\n" in server.metrics.text().decode()

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
            assert (server.num_held, len(server._turns)) == (0, 4)
            over.set()
    assert all(judge.is_closed for judge in judges)
    assert len(server._turns) == 0


async def test_a_run_goes_on_after_a_cut_with_the_same_verdicts():
    """The edge asks again for the first that it lacks."""
    async with serving_judges(ToyJudge) as (port, server):
        async with raw(url_of(port)) as ws:
            await say(ws, opening(), SILENCE, wire.Finish(16_000, {}), replace(FIRST, runs_on=True))
            verdicts = [await told(ws, Verdict) for _ in range(4)]
            ws.transport.abort()
        await until(lambda: server.num_held == 1)
        prefix = prefix_hash([verdict.next_id for verdict in verdicts[:2]])
        async with raw(url_of(port)) as ws:
            await say(ws, opening(), VerifyRequest(3, 2, prefix, (), (), runs_on=True))
            assert [await told(ws, Verdict) for _ in range(2)] == verdicts[2:]


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
async def test_edges_cut_off_at_any_moment_leave_nothing(wanted, times):
    chance, sizes = random.Random(times), []
    tokenizer = Tokenizer(CLOUD).vocabulary(1 << 16).fingerprint
    opened = opening(tokenizer=tokenizer, phrases=read_card(CLOUD).phrases)
    with verifying("--max-sessions", 2, "--resume-s", 0) as (url, process):
        for i in range(times):
            data = SAMPLES[i % len(SAMPLES)].read_bytes()[44:]
            starts = range(0, len(data), 32_000)
            pieces = [wire.Audio(at // 2, data[at : at + 32_000], False) for at in starts]
            async with raw(url) as edge:
                await say(edge, opened, *pieces)
                await say(edge, wire.Finish(len(data) // 2, {}), replace(FIRST, runs_on=True))
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


WEIGHTS = {"rate": (-1023, -3, 0, -40, -900), "pitch": (0, -1, -5, -9)}


def connected(turn, served=None):
    """A websocket until the edge has nothing to say: (the other end, what it said, what is left)."""
    messages = turn.messages()
    opened = wire.decode_up(wire.encode(next(messages)))
    if served is None:
        served = ServedTurn(MODEL, opened)
    turn.receive(wire.Heard(served.num_samples, served.is_finished, "model"))
    said = []
    while (message := next(messages)) is not None:
        said.append(wire.decode_up(wire.encode(message)))
        match said[-1]:
            case wire.Audio():
                served.audio(said[-1])
            case wire.Finish():
                served.finish(said[-1])
            case _:
                continue
        turn.receive(wire.Heard(served.num_samples, served.is_finished))
    return served, said, messages


@pytest.mark.parametrize("kept", [0, 5_000, 20_000])
async def test_only_lost_audio_crosses_again(kept):
    """After a cut the edge waits for the verifier's word before it sends audio."""
    turn = await turn_without_socket(sound(1.25), weights={})
    connected(turn)
    messages = turn.messages()
    assert [type(message) for message in said_by(messages)] == [wire.Open]
    turn.receive(wire.Heard(kept, False, "model"))
    said = said_by(messages)
    assert sum(len(m.samples()) for m in said if isinstance(m, wire.Audio)) == 20_000 - kept
    assert isinstance(said[-1], wire.Finish)


async def test_a_resumed_turn_says_its_weights_and_the_requests_without_a_reply():
    turn = await turn_without_socket(sound(0.02), weights=WEIGHTS)
    served, _, messages = connected(turn)
    requests = [VerifyRequest(n, 0, prefix_hash(()), (), (n,)) for n in (1, 2, 3)]
    first, second, third = await ask(turn, *requests)
    assert said_by(messages) == requests
    turn.receive(Verdict(2, 1, 9))
    assert await second == Verdict(2, 1, 9)
    first.cancel()
    await asyncio.wait([first])
    _, said, _ = connected(turn, served)
    assert said == [wire.Finish(320, WEIGHTS), requests[2]]
    turn.receive(Verdict(1, 0, 9))  # it was given up
    turn.receive(Refusal(3, "prefix"))
    assert await third == Refusal(3, "prefix")
    assert connected(turn, served)[1] == [wire.Finish(320, WEIGHTS)], "a refusal is a reply"
    anew, *_ = connected(turn)  # the verifier was restarted: the turn is sent again
    assert (anew.is_finished, anew.num_samples) == (True, 320)


async def test_what_cannot_be_is_the_verifiers_fault():
    cases = {
        "for another one": wire.Heard(321, False),
        f"then id {VOCABULARY.num_ids}": Verdict(1, 0, VOCABULARY.num_ids),
        "3 of 0 ids accepted": Verdict(1, 3, 5),
    }
    for part, message in cases.items():
        turn = await turn_without_socket(sound(0.02), weights={})
        connected(turn)
        await ask(turn, FIRST)
        with pytest.raises(RemoteFault, match=part):
            turn.receive(message)
    with pytest.raises(RemoteFault, match="for another one"):
        turn.receive(wire.Heard(0, False, "another model"))
    runs_on = await turn_without_socket(sound(0.02), weights={})
    *_, messages = connected(runs_on)
    await ask(runs_on, VerifyRequest(1, 0, prefix_hash(()), (), (), True))
    said_by(messages)
    with pytest.raises(RemoteFault, match="3 of 0 ids accepted"):
        runs_on.receive(Verdict(2, 3, 5))


MOST_SAMPLES = int(MODEL.max_turn_s * 16_000) + AROUND_SAMPLES


def served_with(num):
    turn = ServedTurn(MODEL, opening())
    turn.audio(wire.Audio(0, bytes(2 * num), False))
    return turn


def finished(num):
    turn = served_with(num)
    turn.finish(wire.Finish(num, WEIGHTS))
    return turn


@pytest.mark.parametrize(
    ("told", "give"),
    [
        ("samples 0 to 5 are missing", lambda: served_with(0).audio(wire.Audio(5, b"1234", False))),
        ("3200 samples here and 77", lambda: served_with(3_200).finish(wire.Finish(77, {}))),
        ("over once it is", lambda: finished(320).audio(wire.Audio(320, bytes(20), False))),
        ("before the turn's end", lambda: served_with(320).check(FIRST)),
        ("at most 60 s", lambda: served_with(MOST_SAMPLES + 1)),
        *(
            ("ids that", lambda ids=ids: finished(320).check(VerifyRequest(1, 0, bytes(8), *ids)))
            for ids in [(((1 << 24) - 1,), ()), ((), (0, VOCABULARY.num_ids)), ((0,) * 177, ())]
        ),
    ],
)
def test_what_cannot_be_ends_the_turn(told, give):
    with pytest.raises(Broken, match=told) as broken:
        give()
    assert broken.value.is_final


def test_the_longest_turn_and_answer_are_served():
    assert served_with(MOST_SAMPLES).num_samples == MOST_SAMPLES
    finished(320).check(VerifyRequest(1, 100, bytes(8), (0,) * 38, (0,) * 38))


RULES = vars(Rules())
MISFITS = {
    "different tokenizers": {"tokenizer": "other"},
    "is to be described in 'en'": {"rules": RULES | {"language": "en"}},
    "not the one": {"model": "0123"},
    "say different phrases": {"phrases": "0123"},
    "has others": {"rules": RULES | {"new_rule": 1}},
    "repetition_penalty": {"rules": RULES | {"repetition_penalty": 1e-300}},
    "ngram": {"rules": RULES | {"ngram": 10**9}},
    "max_new_tokens": {"rules": RULES | {"max_new_tokens": 129}},
    "temperature must be": {"sampling": (-1.0, 1.0, 0)},
}


@pytest.mark.parametrize("told", MISFITS)
def test_an_edge_that_does_not_fit_learns_why(told):
    with pytest.raises(Broken, match=told) as broken:
        ServedTurn(MODEL, opening(**MISFITS[told]))
    assert broken.value.is_final
    assert len(str(broken.value)) <= 200, "it fits into a Rejected"


def test_pauses_grow_until_a_success():
    backoff, pauses = Backoff(*VERDICT_PAUSES_S), []
    for now in range(9):
        backoff.failed(now)
        pauses.append(backoff.pause_s)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    backoff.succeeded()
    assert backoff.pause_s == 0.0
