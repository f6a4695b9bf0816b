"""Replicas that a director knows, other programs at their ports, and another director's list."""

import contextlib
import json
import socket
import threading
from contextlib import AsyncExitStack

import anyio
import pytest
from fake_session import opening
from fleets import created, directing, fetched, fleet, until
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from wire import running

from streamer.config import ConfigError
from streamer.extras.fleet import replicas as of_roster
from streamer.extras.fleet.options import DirectorOptions
from streamer.net.service.admission import incarnation_in

pytestmark = pytest.mark.usefixtures("patient")


async def test_one_that_never_answers_gets_no_client():
    with socket.socket() as mute:  # it listens and never accepts
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        port = mute.getsockname()[1]
        one = running(opening(), 1, name="one.1")
        async with one as (address, _), directing() as (url, roster):
            roster.set([address.removesuffix("/v1/realtime"), f"ws://127.0.0.1:{port}"])
            await until(lambda: roster.answering)
            async with connect(url) as ws:
                assert incarnation_in(await created(ws)) == "one.1"
                with pytest.raises(InvalidStatus):
                    await connect(url)


async def test_people_find_all_replicas_and_prometheus_its_targets():
    async with fleet(num=2) as (url, servers):
        targets = json.loads((await fetched(url, "/v1/targets"))[1])
        assert {target["targets"][0] for target in targets} == {
            address.removeprefix("ws://").partition("/")[0] for address in servers
        }
        assert {t["labels"]["replica"] for t in targets} == {"server-0", "server-1"}
        assert {t["labels"]["kind"] for t in targets} == {"server"}
        rows = json.loads((await fetched(url, "/v1/replicas"))[1])
        assert [row["status"]["limit"] for row in rows] == [2, 2]
        assert (await fetched(url, "/readyz"))[0] == (await fetched(url, "/healthz"))[0] == 200
        metrics = (await fetched(url, "/metrics"))[1]
        assert 'streamer_fleet_replicas{kind="server"} 2.0' in metrics
        assert 'streamer_fleet_replicas{kind="verifier"} 0.0' in metrics


async def test_a_second_director_follows_the_first_and_outlives_it():
    async with AsyncExitStack() as stack:
        address, _ = await stack.enter_async_context(running(opening(), 8, name="one.1"))
        async with directing(address) as (first, known):
            await until(lambda: known.answering)
            source = first.replace("ws", "http", 1).removesuffix("/v1/realtime")
            second, roster = await stack.enter_async_context(directing(sources=[source]))
            await until(lambda: roster.answering)
            ws = await stack.enter_async_context(connect(first))
            await created(ws)
        await anyio.sleep(0)
        assert await (await ws.ping()) >= 0  # the session never notices
        async with connect(second) as other:
            assert incarnation_in(await created(other)) == "one.1"


def answering(*, with_bytes):
    """A port where each connection gets these bytes: (the listening socket, its address)."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):  # until it is closed
            while True:
                found, _ = listening.accept()
                with found:
                    found.recv(4096)
                    found.sendall(with_bytes)

    threading.Thread(target=serve, daemon=True).start()
    return listening, f"ws://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize(
    "told",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b"",
    ],
)
async def test_one_that_speaks_something_else_ends_no_director(told):
    """Another program has the port of a replica: no client is sent there, and the rest goes on."""
    mute, there = answering(with_bytes=told)
    with mute:
        async with (
            running(opening(), 8, name="one.1") as (address, _),
            directing() as (url, roster),
        ):
            good = address.removesuffix("/v1/realtime")
            roster.set([there, "ws://h:port", "ws://[::1", good])
            await until(lambda: all(k.silent_since for k in roster.known if k.address != good))
            await until(lambda: roster.answering)
            async with connect(url) as ws:
                assert incarnation_in(await created(ws)) == "one.1"


@pytest.mark.parametrize(
    "url", ["h:8765", "server-0", "ws://", "ws://h:port", "ftp://h", "ws://[::1"]
)
def test_an_address_that_is_none_is_told_at_the_start(url):
    with pytest.raises(ConfigError, match=r"--replicas is .*; give ws://HOST:PORT of a replica"):
        DirectorOptions(replicas=(url,))


@pytest.mark.parametrize("query", [b"x=\x1b[31m", b"x=\x07", b"x=\x7f"])
async def test_a_control_character_is_refused_and_never_logged(query, caplog, capfd):
    """A terminal would obey a raw escape sequence in a log."""
    caplog.set_level("DEBUG", "streamer")
    async with directing() as (url, _):
        port = int(url.rpartition(":")[2].partition("/")[0])
        stream = await anyio.connect_tcp("127.0.0.1", port)
        async with stream:
            await stream.send(b"GET /v1/replica?" + query + b" HTTP/1.1\r\nHost: h\r\n\r\n")
            assert (await stream.receive()).startswith(b"HTTP/1.1 400 ")
    logged = caplog.text + "".join(capfd.readouterr())
    assert not {"\x1b", "\x07", "\x7f"} & set(logged)


async def test_a_director_that_never_answers_is_reported_once(monkeypatch, caplog):
    monkeypatch.setattr(of_roster, "UNHEARD_S", 0.2)
    async with anyio.create_task_group() as group:
        group.start_soon(of_roster.follow, of_roster.Roster(), ["http://127.0.0.1:1"], None)
        await until(lambda: caplog.messages)
        await anyio.sleep(2.5)
        group.cancel_scope.cancel()
    (told,) = caplog.messages
    assert told.startswith("http://127.0.0.1:1 has never answered as a director (Connection ref")


async def test_an_address_that_never_answers_as_a_replica_is_reported_once(monkeypatch, caplog):
    """Beside others that do, and also if another program answers there."""
    monkeypatch.setattr(of_roster, "UNHEARD_S", 0.5)
    other, there = answering(with_bytes=b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    with other:
        async with running(opening(), 8, name="one.1") as (address, _), directing() as (_, roster):
            good = address.removesuffix("/v1/realtime")
            roster.set([good, "ws://127.0.0.1:1", there])
            await until(lambda: len(caplog.messages) == 2)
            await until(lambda: roster.answering)
            for known in roster.known:
                known.since -= 100.0
            await anyio.sleep(1.0)
    assert sorted(caplog.messages) == sorted(
        [
            "ws://127.0.0.1:1 has never answered as a replica (Connection refused); "
            "is the address right?",
            f"{there} has never answered as a replica (no status of a replica); "
            "is the address right?",
        ]
    )
