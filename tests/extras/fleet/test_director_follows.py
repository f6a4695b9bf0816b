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
from streamer.extras.fleet import director as of_director
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


async def test_prometheus_finds_lost_replicas_too():
    async with AsyncExitStack() as stack:
        url, roster = await stack.enter_async_context(directing())
        async with running(opening(), 1, name="one.1") as (address, _):
            roster.set([address.removesuffix("/v1/realtime")])
            await until(lambda: roster.answering)
        await until(lambda: not roster.answering)
        (target,) = json.loads((await fetched(url, "/v1/targets"))[1])
        assert target["labels"] == {"kind": "server", "replica": "one"}


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


@pytest.mark.parametrize("path", ["/v1/other", "/v1/realtime/x", "//", "/v1/replica?kind=other"])
async def test_an_unknown_path_is_refused_in_one_line(path):
    async with fleet(num=1) as (url, _):
        status, told, _ = await fetched(url, path)
        assert (status, told.count("\n")) in {(404, 1), (400, 1)}


async def test_a_proxy_of_the_environment_does_not_stand_before_replicas(monkeypatch):
    """It is for the world outside, and an edge's link ignores it too."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with fleet(num=1) as (_, servers):
        assert len(servers) == 1  # `fleet` has waited for its answer


async def test_without_replicas_it_is_not_ready():
    async with directing() as (url, _):
        assert (await fetched(url, "/readyz"))[0] == 503
        assert (await fetched(url, "/healthz"))[0] == 200


async def test_an_offer_of_http_2_is_passed_over():
    offer = {
        "Connection": "Upgrade, HTTP2-Settings",
        "Upgrade": "h2c",
        "HTTP2-Settings": "AAMAAABk",
    }
    async with directing() as (url, _):
        assert (await fetched(url, "/healthz", offer))[:2] == (200, "ok\n")


async def test_a_connection_that_asks_nothing_is_closed(monkeypatch):
    monkeypatch.setattr(of_director, "HANDSHAKE_S", 0.2)
    async with directing() as (url, _):
        host, _, port = url.split("//")[1].partition("/")[0].partition(":")
        stream = await anyio.connect_tcp(host, int(port))
        async with stream:
            with (
                anyio.fail_after(60),
                pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)),
            ):
                await stream.receive()


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


async def test_a_replica_that_returns_is_open_again_to_a_follower():
    """Its address stayed in a list that could not be read meanwhile."""
    async with AsyncExitStack() as stack:
        address, _ = await stack.enter_async_context(running(opening(), 8, name="one.1"))
        first, known = await stack.enter_async_context(directing(address))
        source = first.replace("ws", "http", 1).removesuffix("/v1/realtime")
        _, roster = await stack.enter_async_context(directing(sources=[source]))
        await until(lambda: roster.answering)
        one = address.removesuffix("/v1/realtime")
        known.leave(one)
        await until(lambda: roster.answering[0].is_leaving)
        known.set([])
        known.set([one])
        await until(lambda: not roster.answering[0].is_leaving)
        assert [candidate.address for candidate in roster.answering] == [one]


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
