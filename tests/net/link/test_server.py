"""The verifier as a service: who may connect, how many, what it tells, how it goes down; nobody's
garbage hurts others."""

import contextlib
import random
import signal

import anyio
import pytest
from far import mutated, verifying
from processes import describe
from speech import SAMPLES
from tls import certificate
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from wire import http

from streamer import Describer, ModelError
from streamer.core.link import packing, wire
from streamer.core.rules.settings import Rules
from streamer.model.checkpoint.card import read_card
from streamer.model.thinker import EMBEDDED

PHRASES = read_card(EMBEDDED / "cloud").phrases


def opening(channel=0, session=b"s" * 16, epoch=1, **changed):
    rules = vars(Rules()) | {"phrases": PHRASES}
    fields = {
        "version": wire.VERSION,
        "model": "",
        "tokenizer": "x",
        "language": "zh",
        "rules": rules,
        "sampling": (0.0, 1.0, 0),
    }
    return wire.Open(channel, session, epoch, **(fields | changed))


async def say(ws, *messages):
    for message in messages:
        await ws.send(wire.encode(message))


async def hear(ws):
    with anyio.fail_after(10):
        return wire.decode_down(await ws.recv())


async def test_an_edge_that_does_not_fit_is_told_why(verifier, tokenizer):
    """Before a slot is taken; the link lives, and the next turn on it may fit."""
    rules = vars(Rules()) | {"phrases": PHRASES}
    misfits = {
        "different tokenizers": {"tokenizer": "other"},
        "speaks version": {"version": 99, "tokenizer": tokenizer},
        "describes in 'zh'": {"language": "en", "tokenizer": tokenizer},
        "not the one": {"model": "0123", "tokenizer": tokenizer},
        "say different phrases": {"rules": rules | {"phrases": "0123"}, "tokenizer": tokenizer},
        "has others": {"rules": rules | {"new_rule": 1}, "tokenizer": tokenizer},
        "repetition_penalty must be at least 0.001": {
            "rules": rules | {"repetition_penalty": 1e-300},
            "tokenizer": tokenizer,
        },
        "loop_temperature must be at least 0.001": {
            "rules": rules | {"loop_temperature": 1e-300},
            "tokenizer": tokenizer,
        },
        "loop_max_period is": {"rules": rules | {"loop_max_period": 10**9}, "tokenizer": tokenizer},
        "temperature must be": {"sampling": (-1.0, 1.0, 0), "tokenizer": tokenizer},
    }
    async with connect(verifier + wire.PATH) as ws:
        for i, (why, fields) in enumerate(misfits.items()):
            await say(ws, opening(i, **fields))
            told = await hear(ws)
            assert (type(told), told.channel, told.is_final) == (wire.Rejected, i, True)
            assert why in told.reason
        await say(ws, opening(200, tokenizer=tokenizer))
        assert isinstance(await hear(ws), wire.OpenedMessage)


async def test_what_cannot_be_ends_the_turn_and_no_other(verifier, tokenizer):
    """Gaps, requests too early, ids that are none, half samples: Rejected; the link and its other
    turn go on."""
    silence = wire.AudioMessage(0, 0, bytes(32_000), False)
    ready = (silence, wire.Finish(0, 16_000))
    wrong = [
        [wire.AudioMessage(0, 5, bytes(20), False)],
        [wire.Finish(0, 77)],
        [silence, wire.VerifyMessage(0, 1, 1, 0, 0, b"", b"")],
        [*ready, wire.VerifyMessage(0, 1, 1, 0, 0, b"\xff\xff\xff" * 3, b"")],
        [*ready, wire.VerifyMessage(0, 1, 1, 0, 0, b"\x01\x00\x00" * 300, b"")],
        [*ready, wire.AudioMessage(0, 16_000, bytes(20), False)],
    ]
    async with connect(verifier + wire.PATH) as ws:
        await say(ws, opening(7, b"other turn      ", tokenizer=tokenizer))
        assert isinstance(await hear(ws), wire.OpenedMessage)
        for i, messages in enumerate(wrong):
            await say(ws, opening(0, bytes([i]) * 16, tokenizer=tokenizer), *messages)
            told = await hear(ws)
            while not isinstance(told, wire.Rejected):
                assert told.channel == 0
                told = await hear(ws)
            assert told.is_final
        await say(ws, wire.AudioMessage(7, 0, bytes(32_000), False), wire.Finish(7, 16_000))
        told = await hear(ws)
        while not (isinstance(told, wire.HeardMessage) and told.is_finished):
            told = await hear(ws)
        assert (told.channel, told.num_samples) == (7, 16_000)


async def test_a_repeat_is_answered_once_more_and_an_older_link_is_not_heard(verifier, tokenizer):
    from streamer.core.decoding.verdict import VerifyRequest, prefix_hash

    request = VerifyRequest(1, 0, prefix_hash(()), (), ())
    async with connect(verifier + wire.PATH) as old, connect(verifier + wire.PATH) as new:
        session = b"repeated request"
        await say(
            old,
            opening(3, session, 1, tokenizer=tokenizer),
            wire.AudioMessage(3, 0, bytes(32_000), False),
            wire.Finish(3, 16_000),
        )
        ask = [packing.verify_message(3, 1, request)] * 2
        await say(old, *ask)
        replies = []
        while len(replies) < 2:
            told = await hear(old)
            replies += [told] * isinstance(told, wire.Judged)
        assert replies[0] == replies[1]
        await say(
            new,
            opening(9, session, 2, tokenizer=tokenizer),
            wire.Finish(9, 16_000),
            packing.verify_message(9, 2, request),
        )
        told = await hear(new)
        assert told == wire.OpenedMessage(9, 2, 16_000, told.model)
        while not isinstance(told, wire.Judged):
            told = await hear(new)
        assert (told.n_accepted, told.next_id, told.epoch) == (
            replies[0].n_accepted,
            replies[0].next_id,
            2,
        )
        await say(old, opening(3, session, 1, tokenizer=tokenizer))
        told = await hear(old)
        assert isinstance(told, wire.Rejected)
        assert "older than link 2" in told.reason


@pytest.mark.parametrize("links", [25, pytest.param(600, marks=pytest.mark.long)])
async def test_garbage_closes_its_link_at_most(verifier, wanted, tokenizer, links):
    """Fuzzed messages on many links; an honest edge beside them is served as ever. The process has
    no complaints."""
    chance, count = random.Random(links), 0

    async def fuzz():
        nonlocal count
        for _ in range(links // 5):
            messages = [
                opening(chance.randint(0, 3), chance.randbytes(16), 1, tokenizer=tokenizer),
                wire.AudioMessage(0, 0, bytes(640), False),
                wire.Finish(0, 320),
                wire.VerifyMessage(0, 1, 1, 0, 0, b"", b"\x01\x00\x00"),
                wire.Close(0),
                wire.Ping(3),
                wire.Decode(0, 1, 1, 0, 0x4F4D4E4C4B4A4948, b""),
                wire.AudioMessage(0, 320, bytes(7), True),
            ]
            with contextlib.suppress(ConnectionClosed):
                async with connect(verifier + wire.PATH) as ws:
                    for _ in range(chance.randint(1, 30)):
                        data = wire.encode(chance.choice(messages))
                        await ws.send(mutated(chance, data) if chance.random() < 0.8 else data)
                        count += 1

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(fuzz)
        async with Describer.open(mode="exact", cloud=verifier) as describer:
            for file in SAMPLES:
                found = await describer.describe(file)
                assert list(found.ids) == wanted["exact"][file.name]["ids"]
    assert http(verifier + "/v1/realtime", "/healthz")[0] == 200
    print(f"{count} messages on {links} links")


async def test_an_answer_decoded_alone_is_said_again_from_anywhere(verifier, tokenizer):
    """A cut link: the verifier is further on than its edge, and says what was lost, in order, and
    nothing else."""
    from streamer.core.decoding.verdict import prefix_hash

    async def hear_all(ws, number):
        found = []
        while len(found) < 8:
            told = await hear(ws)
            if isinstance(told, wire.Judged | wire.Refused):
                assert isinstance(told, wire.Judged), told
                assert (told.channel, told.number) == (0, number + len(found))
                assert (told.n_accepted, len(told.log_probs)) == (0, 2)  # of the one id that stands
                found.append(told.next_id)
        return found

    session, whole = b"decodes alone   ", None
    for epoch, number in enumerate((1, 1, 4), start=1):
        ids = (whole or [])[: number - 1]
        prefix = int.from_bytes(prefix_hash(ids), "big")
        async with connect(verifier + wire.PATH) as ws:
            await say(
                ws,
                opening(0, session, epoch, tokenizer=tokenizer),
                *[wire.AudioMessage(0, 0, bytes(32_000), False)] * (epoch == 1),
            )
            await say(
                ws, wire.Finish(0, 16_000), wire.Decode(0, epoch, number, len(ids), prefix, b"")
            )
            found = await hear_all(ws, number)
            whole = whole or found
            assert ids + found == whole + found[8 - len(ids) :]


async def test_text_and_giants_are_refused(verifier):
    for message in ("text", bytes(wire.MAX_MESSAGE_BYTES + 1)):
        async with connect(verifier + wire.PATH) as ws:
            with contextlib.suppress(ConnectionClosed):
                await ws.send(message)
            await ws.wait_closed()
            assert ws.close_code in (1008, 1009)


@pytest.mark.parametrize("edges", [8, pytest.param(16, marks=pytest.mark.long)])
async def test_many_edges_at_once_no_id_crosses(verifier, wanted, edges):
    """Each with a link of its own, all in the same steps of one model: what each gets alone."""
    found = {}

    async def describe_all(i):
        async with Describer.open(mode="exact" if i % 2 else "cloud", cloud=verifier) as describer:
            for k in range(2):
                file = SAMPLES[(i + k) % len(SAMPLES)]
                found[i, file.name] = list((await describer.describe(file)).ids)

    async with anyio.create_task_group() as group:
        for i in range(edges):
            group.start_soon(describe_all, i)
    assert len(found) == 2 * edges
    for (_, name), ids in found.items():
        assert ids == wanted["exact"][name]["ids"]


@pytest.fixture
def files(tmp_path):
    """(certificate chain, private key, the authority's certificate), for 127.0.0.1."""
    return certificate(tmp_path)


async def test_key_tls_and_errors_are_one_line(files, tmp_path, monkeypatch):
    """wss:// with a key; a wrong one, and a verifier that is not there, are told in one line; exit
    1."""
    chain, key, ca = files
    with verifying("--cert", chain, "--key", key, "--api-key", "secret") as (url, _):
        assert url.startswith("wss://")
        options = {"mode": "exact", "cloud": url, "cloud_ca": str(ca)}
        async with Describer.open(**options, cloud_key="secret") as describer:
            assert (await describer.describe(SAMPLES[0])).verified_share == 1.0
        status, rows, told = describe(
            SAMPLES[0], "--cloud", url, "--cloud-ca", ca, "--mode", "exact", "--cloud-key", "wrong"
        )
        assert (status, rows, told.count("\n")) == (1, [], 1)
        assert "HTTP 401 (wrong or missing API key" in told
        for wrong in ("quokka\nlines", "quokka x"):
            monkeypatch.setenv("STREAMER_CLOUD_KEY", wrong)
            async with Describer.open(**options) as describer:
                with pytest.raises(ModelError) as refused:
                    await describer.load()
            assert "quokka" not in str(refused.value)
            assert "\n" not in str(refused.value)
        async with Describer.open(
            mode="exact", cloud=url, cloud_ca=str(tmp_path / "none.pem"), cloud_key="secret"
        ) as describer:
            with pytest.raises(ModelError, match="cannot be read"):
                await describer.load()
    status, rows, told = describe(
        SAMPLES[0], "--cloud", url, "--mode", "exact", "--verify-budget-s", 0.2
    )
    assert (status, [set(row) for row in rows], told.count("\n")) == (1, [{"file", "error"}], 1)
    assert "--degrade" in told


@pytest.mark.long
async def test_links_are_bounded_and_silent_ones_are_dropped():
    """Without a turn too: a link costs something."""
    with verifying("--max-sessions", 1) as (url, _):
        links = [await connect(url + wire.PATH, ping_interval=None) for _ in range(10)]
        with pytest.raises(InvalidStatus) as refused:
            await connect(url + wire.PATH)
        assert refused.value.response.status_code == 503
        with anyio.fail_after(20):
            for link in links:
                await link.wait_closed()
        async with connect(url + wire.PATH) as again:
            await say(again, wire.Ping(5))
            assert await hear(again) == wire.Pong(5)


async def test_full_health_and_a_clean_end(wanted):
    """503 before the upgrade; a turn in hand when SIGTERM comes is answered; exit 0."""
    with verifying("--max-sessions", 1) as (url, process):
        async with (
            Describer.open(mode="exact", cloud=url) as describer,
            describer.session() as session,
        ):
            pcm = SAMPLES[0].read_bytes()[44:]
            await session.feed(pcm[:64_000])
            with anyio.fail_after(10):
                while "\nstreamer_sessions 1.0" not in http(url + "/v1/realtime", "/metrics")[1]:
                    await anyio.sleep(0.02)
            with pytest.raises(InvalidStatus) as refused:
                await connect(url + wire.PATH)
            assert refused.value.response.status_code == 503
            assert refused.value.response.headers["Retry-After"]
            assert http(url + "/v1/realtime", "/readyz")[0] == 200
            process.send_signal(signal.SIGTERM)
            with anyio.fail_after(10):
                while http(url + "/v1/realtime", "/readyz")[0] != 503:
                    await anyio.sleep(0.02)
            await session.feed(pcm[64_000:])
            await session.commit()
            events = [event async for event in session]
            assert list(events[-1].ids) == wanted["exact"][SAMPLES[0].name]["ids"]
        assert await anyio.to_thread.run_sync(lambda: process.wait(15)) == 0
