"""The server's end; sessions that are resumed; clients that vanish, do not read or mean harm: they cost
the others nothing. Links that are cut at any moment: tests/net/test_history.py.
"""

import asyncio
import base64
import contextlib
import json
import os
import random
import resource
import signal
import socket

import anyio
import openai
import pytest
import soundfile
import websockets
import wire
from processes import EXIT_S, memory_mb, started
from processes import until as wait_until
from speech import SAMPLES, pcm, speech
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from streamer.net.realtime import server as connection
from streamer.net.realtime import session
from streamer.net.realtime.session import OBJECT_BYTES, Journal
from streamer.net.service.service import DRAIN_S, MAX_WAITING

VAD = {"type": "server_vad"}
UPDATE = wire.session_update(binary=True)


async def to_the_end(ws):
    """The events up to the close of the socket."""
    events = []
    with contextlib.suppress(websockets.ConnectionClosed):
        async for message in ws:
            events.append(json.loads(message))
    return events


def test_turns_in_flight_are_answered_before_the_server_ends():
    """Wherever SIGTERM comes in a turn: sentence, close 1012, exit 0."""
    data = pcm(speech(4, 1))
    with wire.serving("--mode", "exact", "--max-sessions", 16) as (url, process):

        async def one(before, ready):
            async with connect(url) as ws:
                vad = VAD if before is None else None
                await ws.send(wire.session_update(vad=vad, binary=True, acks=True))
                messages = [data[:30_000], data[30_000:], wire.COMMIT, wire.ANSWER]
                for message in messages[: 2 if before is None else before]:
                    await ws.send(message)
                events = []
                if before is None:
                    events = await wire.until(ws, "input_audio_buffer.speech_started")
                while max((e.get("messages", 0) for e in events), default=0) <= (before or 2):
                    events += await wire.until(ws, "streamer.ack")
                if await ready.wait() == 0:
                    process.send_signal(signal.SIGTERM)
                while wire.http(url, "/readyz")[0] == 200:
                    await asyncio.sleep(0.02)
                for message in [] if before is None else messages[before:]:
                    await ws.send(message)
                events += await to_the_end(ws)
                return before is None, wire.text_of(events), ws.close_code

        async def main():
            wanted = [1, 2, 3, 4, *[None] * 12]
            ready = asyncio.Barrier(len(wanted))
            return await asyncio.gather(*(one(before, ready) for before in wanted))

        found = set(asyncio.run(main()))
        assert len(found) == 2, "those of voice activity, and the others"
        assert all(text and code == 1012 for _, text, code in found)
        assert process.wait(EXIT_S) == 0


@pytest.mark.parametrize("messages", [[wire.ANSWER], [wire.COMMIT]], ids=["uncommitted", "unasked"])
def test_ctrl_c_says_what_it_waits_for_and_ends(messages):
    """A client that is silent now has nothing to wait for."""
    end = "response.done" if messages == [wire.ANSWER] else "input_audio_buffer.committed"
    with started("serve", "--mode", "edge", "--port", 0) as process:
        url = process.stdout.readline().split()[2]

        async def main():
            async with connect(url) as ws:
                for message in (UPDATE, pcm(speech(2, 1)), *messages):
                    await ws.send(message)
                await wire.until(ws, end)
                process.send_signal(signal.SIGINT)
                await to_the_end(ws)

        asyncio.run(main())
        _, complaints = process.communicate(timeout=EXIT_S)  # less than DRAIN_S
    assert "a second Ctrl-C or SIGTERM ends at once" in complaints


async def test_the_second_stop_ends_at_once():
    script = wire.opening(waits=True, is_slow=True)
    async with wire.running(script) as (url, server), connect(url) as ws:
        for message in (UPDATE, bytes(320), wire.COMMIT, wire.ANSWER, UPDATE):
            await ws.send(message)
        for _ in range(2):  # after the second one the answer is asked for
            await wire.until(ws, "session.updated")
        with anyio.fail_after(DRAIN_S / 2):
            server.stop()
            await anyio.sleep(0.1)
            assert ws.close_code is None
            server.stop()
            await to_the_end(ws)


async def say(url, seed):
    async with connect(url) as ws:
        await ws.send(UPDATE)
        return wire.text_of(await wire.describe(ws, pcm(speech(3, seed)), seed))


async def test_clients_that_vanish_leave_nothing_behind():
    """Cut off at any moment: no sessions, queues, memory or slots stay."""
    with wire.serving("--mode", "exact", "--resume-s", 0, "--max-sessions", 8) as (url, process):

        async def vanish(i):
            ws = await connect(url)
            await ws.send(wire.session_update(vad=VAD, binary=True, live_update_s=0.5))
            await ws.send(pcm(speech(0.5 + i % 6, i % 16)))
            await asyncio.sleep(0.03 * (i % 10))
            ws.transport.abort()

        await asyncio.gather(*(vanish(i) for i in range(8)))
        await wire.until_metric(url, "streamer_sessions 0.0")
        memory = memory_mb(process)
        for i in range(6):
            await vanish(i)
        await wire.until_metric(url, "streamer_sessions 0.0")
        for queue in ("pieces", "turns", "events", "unread"):
            await wire.until_metric(url, f'streamer_queue_depth{{queue="{queue}"}} 0.0')
        assert memory_mb(process) - memory < 30
        assert all(await asyncio.gather(*(say(url, i) for i in range(8))))


SESSION = {"audio": {"input": {"turn_detection": None}}, "streamer": {"live_update_s": 1}}
OTHER_OPTIONS = json.dumps({"type": "session.update", "session": SESSION})


@pytest.fixture
def impatient(monkeypatch):
    """Clients that do not read are cut off within a second."""
    assert connection.PROBE_S + 2 * connection.EVERY_S + connection.PATIENCE_S < 20, "as documented"
    monkeypatch.setattr(connection, "PATIENCE_S", 0.4)
    monkeypatch.setattr(connection, "EVERY_S", 0.05)
    monkeypatch.setattr(connection, "PROBE_S", 0.2)
    monkeypatch.setattr(session, "MAX_UNSENT_BYTES", 20_000)


async def until_gone(server, sessions):
    await wait_until(lambda: not server.sessions and not sessions)


def slow_readers(server):
    return server.metrics.slow_readers._value.get()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("script", "messages"),
    [
        ({}, []),
        ({"num_said": 2_000}, []),
        ({"num_last": 20_000}, [OTHER_OPTIONS]),
        ({"num_said": 2_000}, ["nonsense"] * 500),
    ],
    ids=["vanished", "silent", "waiting", "talking"],
)
async def test_a_client_that_does_not_read_is_cut_off(script, messages):
    sessions = []
    async with wire.running(wire.opening(sessions, **script), hold_s=0) as (url, server):
        ws = await connect(url, max_queue=1)
        ws.transport.pause_reading()
        for message in messages:
            await ws.send(message)
        await until_gone(server, sessions)
        assert slow_readers(server) == 1
        ws.transport.abort()


@pytest.mark.usefixtures("impatient")
async def test_a_client_that_is_pushed_back_is_not_cut_off():
    """Its pongs wait after megabytes of its own audio, for several times the patience."""
    async with wire.running(wire.opening(feed_s=0.05)) as (url, server):
        async with connect(url, compression=None) as ws:
            await ws.send(UPDATE)
            for _ in range(40):
                await ws.send(bytes(500_000))
            await ws.send(wire.COMMIT)
            assert wire.text_of(await wire.until(ws, "response.done")) == "20000000"
        assert slow_readers(server) == 0


async def test_a_session_that_breaks_ends_alone(caplog):
    sessions = []
    async with wire.running(wire.opening(sessions, fails=True)) as (url, server):
        async with connect(url) as broken, connect(url) as other:
            await broken.send(UPDATE)
            await broken.send(b"12")
            with pytest.raises(ConnectionClosed) as closed:
                await wire.until(broken, "never")
            assert closed.value.rcvd.code == 1011
            await other.send(wire.session_update())
            await wire.until(other, "session.updated")
        await until_gone(server, sessions)
        assert "streamer_sessions 0.0" in server.metrics.text().decode()
    told = [record.getMessage() for record in caplog.records if record.name == "streamer"]
    assert told == ["connection.failed"]


@pytest.fixture
def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_idle_connections_do_not_starve_the_port():
    """1,500 that say nothing keep no health check out, and are gone after the deadline."""
    with wire.serving("--mode", "edge") as (url, process), contextlib.ExitStack() as stack:
        host, port = url.split("/")[2].split(":")

        def num_files():
            return len(os.listdir(f"/proc/{process.pid}/fd"))

        files = num_files()
        for _ in range(15):
            for _ in range(100):
                stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
            assert wire.http(url, "/healthz")[0] == 200
        assert num_files() - files <= MAX_WAITING + 8
        anyio.run(wait_until, lambda: num_files() <= files + 8)


async def session_of(ws):
    return (await wire.until(ws, "session.created"))[-1]["session"]["id"]


async def status_of(url):
    """The status by which a connection is refused."""
    with pytest.raises(InvalidStatus) as refused:
        await connect(url)
    return refused.value.response.status_code


async def test_the_newest_of_several_that_resume_has_the_session():
    async with wire.running(wire.opening(), max_sessions=1) as (url, _):
        first = await connect(url)
        session = await session_of(first)
        links = [await connect(f"{url}?resume={session}") for _ in range(3)]
        for link in (first, *links[:-1]):
            with pytest.raises(ConnectionClosed) as closed:
                await wire.until(link, "never")
            assert closed.value.rcvd.code == 4409
        for message in (UPDATE, bytes(320), wire.COMMIT):
            await links[-1].send(message)
        assert wire.text_of(await wire.until(links[-1], "response.done")) == "320"
        await links[-1].close()


async def test_requests_that_cannot_be_resumed_are_refused_before_the_upgrade():
    async with wire.running(wire.opening(), hold_s=0.2) as (url, server), connect(url) as ws:
        session = await session_of(ws)
        for query, status in (
            (f"resume={session}&event=2", 400),
            (f"resume={session}&bytes=-1", 400),
            (f"resume={session}&event=" + "9" * 5_000, 400),
            ("resume=sess_0", 404),
        ):
            assert await status_of(f"{url}?{query}") == status
        ws.transport.abort()
        await wait_until(lambda: not server.sessions)
        assert await status_of(f"{url}?resume={session}") == 404


async def test_a_session_without_a_client_keeps_its_place():
    """A new client is refused; the one that was cut finds its session."""
    sessions = []
    async with (
        wire.running(wire.opening(sessions), max_sessions=2, hold_s=600) as (url, server),
        connect(url) as other,
    ):
        await wire.until(other, "session.created")
        ws = await connect(url)
        session = await session_of(ws)
        ws.transport.abort()
        await wait_until(lambda: server.num_held == 1)
        assert await status_of(url) == 503
        async with connect(f"{url}?resume={session}&event=1") as back:
            assert (await wire.until(back, "streamer.resumed"))[-1]["event"] == 1
        await wait_until(lambda: len(sessions) == 1)  # a goodbye ends it at once
        await wait_until(lambda: "streamer_sessions 1.0" in server.metrics.text().decode())


# the client's own, with websockets 17
@pytest.mark.filterwarnings("ignore:connect:DeprecationWarning")
async def test_the_official_client_comes_back_by_on_reconnecting(server, wanted):
    """Unmodified: by its own reconnection with an extra query; the session's options last."""
    base = server.replace("ws", "http", 1).removesuffix("/realtime")
    realtime = openai.AsyncOpenAI(api_key="none", base_url=base).realtime
    session, gaps, text = [], [], ""
    audio, rate = soundfile.read(SAMPLES[0], dtype="int16")

    def again(_):
        return {"extra_query": {"resume": session[0]}}

    async with realtime.connect(model="streamer", on_reconnecting=again) as connection:
        heard = {"format": {"type": "audio/pcm", "rate": rate}, "turn_detection": None}
        await connection.session.update(session={"type": "realtime", "audio": {"input": heard}})
        async for event in connection:
            match event.type:
                case "session.created":
                    session.append(event.session.id)
                case "session.updated":
                    connection._connection.transport.abort()
                case "streamer.resumed":
                    gaps.append(event.lost_events)
                    data = base64.b64encode(audio.tobytes()).decode()
                    await connection.input_audio_buffer.append(audio=data)
                    await connection.input_audio_buffer.commit()
                    await connection.response.create()
                case "response.output_text.delta":
                    text += event.delta
                case "response.done":
                    break
    assert len(gaps) == 1
    assert text == wanted[SAMPLES[0].name]["text"]


@pytest.mark.parametrize("seed", range(20))
def test_every_event_that_is_kept_is_found_by_its_number(seed, monkeypatch):
    """Through random appends and confirmations; what is kept is bounded."""
    monkeypatch.setattr(session, "MAX_HELD_BYTES", 30_000)
    monkeypatch.setattr(session, "KEPT_BYTES", 3_000)
    chance, journal, said = random.Random(seed), Journal("a"), 0
    for _ in range(300):
        text = "x" * chance.choice([0, 9, 500])
        new = [{"type": "x", "i": said + i, "text": text} for i in range(chance.choice([0, 1, 9]))]
        journal.append(new)
        said += len(new)
        if chance.random() < 0.3:
            journal.confirm(chance.randint(0, said + 10))
        journal.sent(chance.randint(0, said))
        assert journal.end == said
        assert journal.first <= journal.num_read <= journal.num_sent <= said
        kept = [journal[number] for number in range(journal.first, said)]
        sizes = [len(row) + OBJECT_BYTES for row in kept]
        assert sum(sizes) <= 30_000
        assert sum(sizes[: journal.num_read - journal.first]) <= 3_000
        for number, row in enumerate(map(json.loads, kept), journal.first):
            assert (row["event_id"], row["i"]) == (f"event_a_{number}", number)
