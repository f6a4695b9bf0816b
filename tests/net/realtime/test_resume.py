"""Links that are cut at any moment: with our own clients no byte and no event is lost or doubled;
with the official one at most what was in flight, and it is told."""

import asyncio
import base64
import contextlib
import json
import random

import anyio
import openai
import pytest
import soundfile
from fake_session import opening
from history import prove
from patience import PATIENCE_S
from returning import Returning
from speech import SAMPLES
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from wire import COMMIT, http, running, session_update, text_of, until


@pytest.mark.parametrize("cuts", [12, pytest.param(50, marks=pytest.mark.long)])
async def test_cut_at_random_nothing_is_lost_or_doubled(server, wanted, cuts):
    """Same ids, same text, every event once, as if the link had held; commits and answers are
    resent too."""
    turns = [soundfile.read(file, dtype="int16")[0].tobytes() for file in SAMPLES]
    done = 0
    for seed in range(100):
        client = Returning(server, turns, random.Random(seed), 0.02)
        history = await asyncio.wait_for(client.run(), 120)
        answers = prove(history, turns, lambda attempt: None)
        for file, answer in zip(SAMPLES, answers, strict=True):
            assert (answer.ids, answer.text) == (
                wanted[file.name]["ids"],
                wanted[file.name]["text"],
            )
        done += history.count("cut")
        if done >= cuts:
            return
    pytest.fail(f"only {done} cuts")


async def test_bytes_are_acknowledged_while_they_are_taken():
    """At least once a second, to who asked for it, and never more than was sent."""
    async with running(opening()) as (url, _), connect(url) as ws:
        await ws.send(session_update(binary=True, acks=True))
        await until(ws, "session.updated")
        sent = acked = 0
        with anyio.fail_after(20):
            for size in (1, 1_000, 3_333):
                await ws.send(bytes(size))
                sent += size
                with anyio.fail_after(1.0):
                    while acked < sent:
                        acked = (await until(ws, "streamer.ack"))[-1]["bytes"]
                        assert acked <= sent
        assert acked == 4_334


async def test_who_comes_back_takes_over_from_a_link_that_is_not_missed_yet():
    """The old socket is still open; what it had sent is taken first, then it is told."""
    async with running(opening(feed_s=0.02), max_sessions=1) as (url, server), connect(url) as old:
        session = (await until(old, "session.created"))[-1]["session"]["id"]
        await old.send(session_update(binary=True))
        for _ in range(10):
            await old.send(bytes(100))
        await until(old, "session.updated")
        async with connect(f"{url}?resume={session}&event=2&bytes=0") as new:
            told = json.loads(await new.recv())
            assert told["type"] == "streamer.resumed"
            assert told["bytes"] == 100 * (told["messages"] - 1)
            with pytest.raises(ConnectionClosed) as closed:
                await until(old, "never")
            assert closed.value.rcvd.code == 4409
            for _ in range(11 - told["messages"]):
                await new.send(bytes(100))
            await new.send(COMMIT)
            assert text_of(await until(new, "response.done")) == "1000"
        assert server._admission.num_sessions <= 1


async def test_what_cannot_be_resumed_is_refused_before_the_upgrade():
    async with running(opening(), hold_s=0.2) as (url, server):
        async with connect(url) as ws:
            session = (await until(ws, "session.created"))[-1]["session"]["id"]
            for query, status in (
                (f"resume={session}&event=2", 400),
                (f"resume={session}&bytes=-1", 400),
                (f"resume={session}&event=" + "9" * 5_000, 400),
                ("resume=sess_0", 404),
            ):
                with pytest.raises(InvalidStatus) as refused:
                    await connect(f"{url}?{query}")
                assert refused.value.response.status_code == status
            ws.transport.abort()
        with anyio.fail_after(PATIENCE_S):
            while server.sessions:
                await anyio.sleep(0.01)
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"{url}?resume={session}")
        assert refused.value.response.status_code == 404


async def test_a_session_without_a_client_keeps_its_place():
    """A newcomer is told to come again; who was promised 30 s finds the session."""
    sessions = []
    async with (
        running(opening(sessions), max_sessions=2, hold_s=600) as (url, server),
        connect(url) as other,
    ):
        await until(other, "session.created")
        ws = await connect(url)
        session = (await until(ws, "session.created"))[-1]["session"]["id"]
        ws.transport.abort()
        with anyio.fail_after(PATIENCE_S):
            while server.num_held == 0:
                await anyio.sleep(0.01)
        with pytest.raises(InvalidStatus) as refused:
            await connect(url)
        assert refused.value.response.status_code == 503
        assert refused.value.response.headers["Retry-After"]
        async with connect(f"{url}?resume={session}&event=1") as back:
            assert (await until(back, "streamer.resumed"))[-1]["event"] == 1
        with anyio.fail_after(PATIENCE_S):
            while len(sessions) > 1:
                await anyio.sleep(0.01)


@pytest.mark.parametrize("num", [8, 64])
async def test_who_comes_at_the_same_moment_is_refused_or_served(num):
    """Never more than there are places, never anybody thrown out for another, 503 before the
    upgrade for the rest."""
    sessions = []
    async with running(opening(sessions), max_sessions=4, hold_s=600) as (url, _):
        found = await asyncio.gather(*(connect(url) for _ in range(num)), return_exceptions=True)
        refused = [error for error in found if isinstance(error, InvalidStatus)]
        served = [ws for ws in found if not isinstance(ws, Exception)]
        assert (len(served), len(refused)) == (4, num - 4)
        assert {error.response.status_code for error in refused} == {503}
        assert len(sessions) == 4
        for ws in served:
            await ws.send(session_update(binary=True))
            await until(ws, "session.updated")
            await ws.close()


async def test_one_that_comes_back_again_and_again_among_newcomers():
    """Nobody is closed with an internal error while a session goes from socket to socket."""
    async with running(opening(), max_sessions=1, hold_s=600) as (url, server):
        async with connect(url) as first:
            session = (await until(first, "session.created"))[-1]["session"]["id"]

            async def newcomer():
                with contextlib.suppress(InvalidStatus):
                    async with connect(url) as ws:
                        with pytest.raises(ConnectionClosed):
                            await until(ws, "never")
                        assert ws.close_code == 1013

            for _ in range(20):
                newcomers = [asyncio.create_task(newcomer()) for _ in range(4)]
                async with connect(f"{url}?resume={session}&event=1") as back:
                    await until(back, "streamer.resumed")
                    back.transport.abort()
                await asyncio.gather(*newcomers)
        assert "streamer_sessions_failed_total 0.0" in server.metrics.text().decode()


async def test_a_goodbye_ends_the_session_at_once():
    sessions = []
    async with running(opening(sessions), hold_s=600) as (url, server):
        async with connect(url) as ws:
            await until(ws, "session.created")
        with anyio.fail_after(PATIENCE_S):
            while sessions or server.sessions:
                await anyio.sleep(0.01)
        assert "streamer_sessions 0.0" in server.metrics.text().decode()


async def test_a_client_that_does_not_count_goes_on_with_what_it_was_not_sent():
    """And is told how many events it may have missed."""
    async with running(opening()) as (url, _):
        ws = await connect(url)
        session = (await until(ws, "session.created"))[-1]["session"]["id"]
        await ws.send(session_update(binary=True))
        await until(ws, "session.updated")
        await ws.send(b"123")
        await ws.send(COMMIT)
        await until(ws, "response.done")
        ws.transport.abort()
        async with connect(f"{url}?resume={session}") as ws:
            told = json.loads(await ws.recv())
            assert (told["bytes"], told["messages"], told["lost_bytes"]) == (3, 3, None)
            assert 0 <= told["lost_events"] <= told["event"]
            await ws.send(b"12345")
            await ws.send(COMMIT)
            assert text_of(await until(ws, "response.done")) == "5"


# the client's own, with websockets 17
@pytest.mark.filterwarnings("ignore:connect:DeprecationWarning")
async def test_the_official_client_comes_back_by_on_reconnecting(server, wanted):
    """Unmodified: its own reconnection with an extra query; the session goes on under the options
    it had."""
    client = openai.AsyncOpenAI(
        api_key="none", base_url=server.replace("ws", "http", 1).removesuffix("/realtime")
    )
    session, gaps = [], []
    audio, rate = soundfile.read(SAMPLES[0], dtype="int16")

    def on_reconnecting(_):
        return {"extra_query": {"resume": session[0]}}

    async with client.realtime.connect(
        model="streamer", on_reconnecting=on_reconnecting
    ) as connection:
        heard = {"format": {"type": "audio/pcm", "rate": rate}, "turn_detection": None}
        await connection.session.update(session={"type": "realtime", "audio": {"input": heard}})
        text = ""
        async for event in connection:
            if event.type == "session.created":
                session.append(event.session.id)
            if event.type == "session.updated":
                connection._connection.transport.abort()
            if event.type == "streamer.resumed":
                gaps.append(event.lost_events)
                await connection.input_audio_buffer.append(
                    audio=base64.b64encode(audio.tobytes()).decode()
                )
                await connection.input_audio_buffer.commit()
                await connection.response.create()
            if event.type == "response.output_text.delta":
                text += event.delta
            if event.type == "response.done":
                break
    assert len(gaps) == 1
    assert text == wanted[SAMPLES[0].name]["text"]
    assert http(server, "/healthz")[0] == 200
