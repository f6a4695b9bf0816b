"""Clients that mean harm, or are lost: they cost neither the others, nor the log, nor the memory."""

import contextlib
import json
import os
import resource
import socket

import anyio
import pytest
from fake_session import opening
from patience import until as wait_until
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from wire import COMMIT, http, running, serving, session_update, text_of, until

from streamer.net.realtime import journal, session
from streamer.net.service.service import MAX_WAITING

UPDATE = session_update(binary=True)
SESSION = {"audio": {"input": {"turn_detection": None}}, "streamer": {"live_update_s": 1}}
OTHER_OPTIONS = json.dumps({"type": "session.update", "session": SESSION})


@pytest.fixture
def impatient(monkeypatch):
    """Clients that do not read are cut off within a second."""
    assert session.PROBE_S + 2 * session.EVERY_S + session.PATIENCE_S < 20, "as documented"
    monkeypatch.setattr(session, "PATIENCE_S", 0.4)
    monkeypatch.setattr(session, "EVERY_S", 0.05)
    monkeypatch.setattr(session, "PROBE_S", 0.2)
    monkeypatch.setattr(journal, "MAX_UNSENT_BYTES", 20_000)


async def until_gone(server, sessions):
    await wait_until(lambda: not server._admission.num_sessions and not sessions)


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
    async with running(opening(sessions, **script), hold_s=0) as (url, server):
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
    async with running(opening(feed_s=0.05)) as (url, server):
        async with connect(url, compression=None) as ws:
            await ws.send(UPDATE)
            for _ in range(40):
                await ws.send(bytes(500_000))
            await ws.send(COMMIT)
            assert text_of(await until(ws, "response.done")) == "20000000"
        assert slow_readers(server) == 0


async def test_a_session_that_breaks_ends_alone(caplog):
    sessions = []
    async with running(opening(sessions, fails=True)) as (url, server):
        async with connect(url) as broken, connect(url) as other:
            await broken.send(UPDATE)
            await broken.send(b"12")
            with pytest.raises(ConnectionClosed) as closed:
                await until(broken, "never")
            assert closed.value.rcvd.code == 1011
            await other.send(session_update())
            await until(other, "session.updated")
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
    with serving("--mode", "edge") as (url, process), contextlib.ExitStack() as stack:
        host, port = url.split("/")[2].split(":")

        def num_files():
            return len(os.listdir(f"/proc/{process.pid}/fd"))

        files = num_files()
        for _ in range(15):
            for _ in range(100):
                stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
            assert http(url, "/healthz")[0] == 200
        assert num_files() - files <= MAX_WAITING + 8
        anyio.run(wait_until, lambda: num_files() <= files + 8)
