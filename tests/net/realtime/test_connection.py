"""One socket against a scripted session: who does not read is cut off in time, who is only pushed
back is not."""

import asyncio
import json

import anyio
import pytest
from fake_session import opening
from patience import PATIENCE_S
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from wire import COMMIT, running, session_update, text_of, until

from streamer.net.realtime import connection, journal

DEAF = {"type": "session.update", "session": {"streamer": {"live_update_s": 1}}}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(connection, "PATIENCE_S", 0.4)
    monkeypatch.setattr(connection, "EVERY_S", 0.05)
    monkeypatch.setattr(connection, "PROBE_S", 0.2)
    monkeypatch.setattr(journal, "MAX_UNSENT_BYTES", 20_000)


async def until_gone(server, sessions):
    with anyio.fail_after(PATIENCE_S):
        while server._admission.num_sessions or sessions:
            await anyio.sleep(0.01)


@pytest.mark.parametrize(
    "messages", [[], [json.dumps(DEAF)], ["nonsense"] * 500], ids=["silent", "waiting", "talking"]
)
async def test_a_client_that_does_not_read_is_cut_off(messages):
    """Whatever its connection waits for: the client, the old session's events, or room for another
    error."""
    sessions = []
    async with running(opening(sessions, num_said=2_000), hold_s=0) as (url, server):
        ws = await connect(url, max_queue=1)
        ws.transport.pause_reading()
        for message in messages:
            await ws.send(message)
        await until_gone(server, sessions)
        assert "streamer_slow_readers_total 1.0" in server.metrics.text().decode()
        ws.transport.abort()


async def test_a_client_that_is_pushed_back_is_not_cut_off():
    """Its pongs wait behind megabytes of its own audio, several times longer than anybody is waited
    for."""
    async with running(opening(feed_s=0.05)) as (url, server):
        async with connect(url, compression=None) as ws:
            await ws.send(session_update(binary=True))
            for _ in range(40):
                await ws.send(bytes(500_000))
            await ws.send(COMMIT)
            assert text_of(await until(ws, "response.done")) == "20000000"
        assert "streamer_slow_readers_total 0.0" in server.metrics.text().decode()


async def test_a_client_that_vanished_is_noticed_though_nothing_is_said():
    sessions = []
    async with running(opening(sessions), hold_s=0) as (url, server):
        ws = await connect(url)
        await until(ws, "session.created")
        ws.transport.pause_reading()  # no pong, no close
        await until_gone(server, sessions)
        assert "streamer_sessions 0.0" in server.metrics.text().decode()
        ws.transport.abort()


async def test_a_session_that_breaks_ends_alone(caplog):
    sessions = []
    async with running(opening(sessions, fails=True)) as (url, server):
        async with connect(url) as broken, connect(url) as other:
            await broken.send(session_update(binary=True))
            await broken.send(b"12")
            with pytest.raises(ConnectionClosed) as closed:
                await until(broken, "never")
            assert closed.value.rcvd.code == 1011
            await other.send(session_update())
            await until(other, "session.updated")
        await until_gone(server, sessions)
    assert [record.getMessage() for record in caplog.records if record.name == "streamer"] == [
        "connection.failed"
    ]


async def test_a_place_is_free_again_when_its_client_has_gone():
    sessions = []
    async with running(opening(sessions), max_sessions=2) as (url, server):
        for _ in range(30):
            async with connect(url) as a, connect(url) as b:
                await asyncio.gather(until(a, "session.created"), until(b, "session.created"))
            await until_gone(server, sessions)
            assert "streamer_sessions 0.0" in server.metrics.text().decode()
