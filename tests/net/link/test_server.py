"""The verifier as a service: who may connect, how many, what it tells, how it goes down; nobody's
garbage hurts others."""

import contextlib
import random
import signal

import anyio
import pytest
from far import mutated, verifying
from patience import EXIT_S, PATIENCE_S
from processes import describe_apart
from raw_links import hear, opening, say
from speech import SAMPLES
from tls import certificate
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from wire import http

from streamer import Describer, ModelError
from streamer.core.link import wire


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
        status, rows, told = describe_apart(
            SAMPLES[0], "--cloud", url, "--cloud-ca", ca, "--mode", "exact", "--cloud-key", "wrong"
        )
        assert (status, rows, told.count("\n")) == (1, [], 1), told
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
    status, rows, told = describe_apart(
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
            with anyio.fail_after(PATIENCE_S):
                while "\nstreamer_sessions 1.0" not in http(url + "/v1/realtime", "/metrics")[1]:
                    await anyio.sleep(0.02)
            with pytest.raises(InvalidStatus) as refused:
                await connect(url + wire.PATH)
            assert refused.value.response.status_code == 503
            assert refused.value.response.headers["Retry-After"]
            assert http(url + "/v1/realtime", "/readyz")[0] == 200
            process.send_signal(signal.SIGTERM)
            with anyio.fail_after(PATIENCE_S):
                while http(url + "/v1/realtime", "/readyz")[0] != 503:
                    await anyio.sleep(0.02)
            await session.feed(pcm[64_000:])
            await session.commit()
            events = [event async for event in session]
            assert list(events[-1].ids) == wanted["exact"][SAMPLES[0].name]["ids"]
        assert await anyio.to_thread.run_sync(lambda: process.wait(EXIT_S)) == 0
