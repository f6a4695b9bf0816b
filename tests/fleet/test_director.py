"""A director before real servers with scripted sessions: whom it sends where, and what it refuses."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import openai
import pytest
from fake_session import opening
from websockets.asyncio.client import connect
from websockets.datastructures import Headers
from websockets.exceptions import InvalidStatus, SecurityError
from websockets.http11 import Request
from wire import http, running, session_update

from streamer.commands.service_options import DirectorOptions
from streamer.config import ConfigError
from streamer.fleet import roster as of_roster
from streamer.fleet.director import Director
from streamer.fleet.lists import follow
from streamer.fleet.roster import Roster
from streamer.net.service.admission import HANDSHAKE_S
from streamer.net.service.handler import Address
from streamer.net.service.http import url_of
from streamer.net.service.status import incarnation_in, incarnation_of

KEY = "alice,bob"


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """A busy machine's silence is none."""
    monkeypatch.setattr(of_roster, "SILENCE_S", 10.0)


@asynccontextmanager
async def directing(*addresses, api_key=None, sources=()):
    """A director over these: (its websocket address, its roster)."""
    roster = Roster()
    roster.set(a.removesuffix("/v1/realtime") for a in addresses)
    ports = []
    is_ready = anyio.Event()

    def ready(port):
        ports.append(port)
        is_ready.set()

    work = [roster.run(), Director(roster, api_key).run(Address(port=0), ready)]
    work += [follow(roster, sources, None)] if sources else []
    tasks = [asyncio.create_task(each) for each in work]
    await is_ready.wait()
    try:
        yield f"ws://127.0.0.1:{ports[0]}/v1/realtime", roster
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def fleet(num=2, max_sessions=2, api_key=None, **more):
    """(a director's address, the servers by their websocket address)."""
    async with AsyncExitStack() as stack:
        servers = {}
        for i in range(num):
            options = {"api_key": api_key, "name": incarnation_of(f"server-{i}")} | more
            running_one = running(opening(), max_sessions, **options)
            url, server = await stack.enter_async_context(running_one)
            servers[url] = server
        url, roster = await stack.enter_async_context(directing(*servers, api_key=api_key))
        await until(lambda: len(roster.candidates) == num)
        yield url, servers


async def until(is_so):
    with anyio.fail_after(20):
        while not is_so():
            await anyio.sleep(0.02)


async def created(ws):
    return json.loads(await ws.recv())["session"]["id"]


async def fetched(*arguments):
    return await asyncio.to_thread(http, *arguments)


async def test_clients_are_spread_and_the_one_too_many_is_refused_at_once():
    async with fleet() as (url, servers), AsyncExitStack() as stack:
        ids = []
        for _ in range(4):
            ids.append(await created(await stack.enter_async_context(connect(url))))
        counts = [server._admission.num_sessions for server in servers.values()]
        assert counts == [2, 2]
        names = {server._admission.name for server in servers.values()}
        assert {incarnation_in(session_id) for session_id in ids} == names
        since = time.perf_counter()
        with pytest.raises(InvalidStatus) as refused:
            await connect(url)
        assert time.perf_counter() - since < 1.0
        assert refused.value.response.status_code == 503
        assert refused.value.response.headers["Retry-After"] == "1"
        assert refused.value.response.body.startswith(b"every server is full, or none is there")


async def test_who_leaves_makes_place(monkeypatch):
    monkeypatch.setattr(of_roster, "HANDSHAKE_S", 1.0)
    async with fleet(num=1, max_sessions=1) as (url, _):
        for _ in range(3):
            async with connect(url) as ws:
                await created(ws)
                assert (await fetched(url, "/v1/replica"))[0] == 503, "the only place is taken"
            with anyio.fail_after(20):
                while (await fetched(url, "/v1/replica"))[0] != 200:
                    await anyio.sleep(0.05)
                # which was a place given away; nobody comes for it
                while 'places_free{kind="server"} 1.0' not in (await fetched(url, "/metrics"))[1]:
                    await anyio.sleep(0.05)


async def test_one_who_wants_more_than_its_share_takes_no_place_of_others():
    """Refused by the replica, it comes again at once, through the director each time."""
    noisy, quiet = ({"Authorization": f"Bearer {key}"} for key in KEY.split(","))
    async with (
        fleet(num=1, max_sessions=2, api_key=KEY, max_per_key=1) as (url, _),
        connect(url, additional_headers=noisy) as ws,
    ):
        await created(ws)
        for _ in range(10):
            with pytest.raises(InvalidStatus):
                await connect(url, additional_headers=noisy)
        async with connect(url, additional_headers=quiet) as other:
            await created(other)


async def test_a_place_that_was_refused_is_free_again_with_the_next_answer():
    """The replica says whom it has refused; nobody waits until a handshake would be over."""
    noisy = {"Authorization": "Bearer alice"}
    async with fleet(num=1, max_sessions=2, api_key=KEY, max_per_key=1) as (url, _):
        async with connect(url, additional_headers=noisy) as ws:
            await created(ws)
            with pytest.raises(InvalidStatus):
                await connect(url, additional_headers=noisy)
        with anyio.fail_after(HANDSHAKE_S / 2):
            while 'places_free{kind="server"} 2.0' not in (await fetched(url, "/metrics"))[1]:
                await anyio.sleep(0.05)


async def test_a_session_is_resumed_where_it_is_and_nowhere_else():
    async with fleet(num=3) as (url, servers):
        ws = await connect(url)
        session_id = await created(ws)
        await ws.send(session_update(binary=True))
        ws.transport.abort()
        async with connect(f"{url}?resume={session_id}&event=1&bytes=0") as again:
            assert json.loads(await again.recv())["type"] == "streamer.resumed"
        assert sum(server._admission.num_admitted for server in servers.values()) == 1


async def test_a_session_whose_replica_is_gone_is_over_at_once():
    """And so is one of an earlier start of the replica, at the same address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with directing(f"ws://127.0.0.1:{port}") as (url, roster):
        ids = []
        for _ in range(2):
            name = incarnation_of("server-0")
            async with running(opening(), at=port, name=name):
                await until(lambda: roster.candidates)
                for old in ids:
                    assert (await fetched(url, f"/v1/replica?resume={old}"))[0] == 404
                async with connect(url) as ws:
                    ids.append(await created(ws))
            await until(lambda: not roster.candidates)
            status, told, _ = await fetched(url, f"/v1/replica?resume={ids[-1]}")
            assert (status, told) == (404, "the replica of this session is gone; connect anew\n")
        assert len(set(ids)) == 2


async def test_one_that_never_answers_gets_nobody():
    with socket.socket() as mute:  # it listens, and nobody accepts
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        port = mute.getsockname()[1]
        one = running(opening(), 1, name="one.1")
        async with one as (address, _), directing() as (url, roster):
            roster.set([address.removesuffix("/v1/realtime"), f"ws://127.0.0.1:{port}"])
            await until(lambda: roster.candidates)
            async with connect(url) as ws:
                assert incarnation_in(await created(ws)) == "one.1"
                with pytest.raises(InvalidStatus):
                    await connect(url)


async def test_a_key_is_never_taken_along_and_a_ticket_lets_in_once():
    """websockets drops the key where it is sent to another address."""
    async with fleet(num=1, max_sessions=4, api_key=KEY) as (url, servers):
        (server,) = servers.values()
        for key in KEY.split(","):
            async with connect(url, additional_headers={"Authorization": f"Bearer {key}"}) as ws:
                await created(ws)
                assert server._admission._by_tenant == {key: 1}
            await until(lambda: not server._admission.num_sessions)
        for path in ("/v1/replica", "/v1/realtime"):
            assert (await fetched(url, path))[0] == 401
        _, told, _ = await fetched(url, "/v1/replica", {"Authorization": "Bearer bob"})
        address = json.loads(told)["url"]
        assert "bob" not in address
        async with connect(address) as ws:  # as a browser would
            await created(ws)
        with pytest.raises(InvalidStatus) as refused:
            await connect(address)
        assert refused.value.response.status_code == 401


async def test_the_official_client_asks_first_since_it_follows_nobody_elsewhere():
    """It refuses a redirect to another address, to keep its key; with the address it connects."""
    async with fleet(num=1, max_sessions=4) as (url, _):
        base = url.replace("ws", "http", 1).removesuffix("/realtime")
        client = openai.AsyncOpenAI(api_key="none", base_url=base)
        with pytest.raises(SecurityError, match="Cross-origin"):
            await client.realtime.connect(model="streamer").enter()
        address = json.loads((await fetched(url, "/v1/replica"))[1])["url"]
        client = openai.AsyncOpenAI(
            api_key="none", websocket_base_url=address.removesuffix("/realtime")
        )
        async with client.realtime.connect(model="streamer") as connection:
            event = json.loads(await connection.recv_bytes())
            assert event["type"] == "session.created"


async def test_who_looks_finds_all_replicas_and_prometheus_its_targets():
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
            await until(lambda: known.candidates)
            source = first.replace("ws", "http", 1).removesuffix("/v1/realtime")
            second, roster = await stack.enter_async_context(directing(sources=[source]))
            await until(lambda: roster.candidates)
            ws = await stack.enter_async_context(connect(first))
            await created(ws)
        await anyio.sleep(0)
        assert await (await ws.ping()) >= 0  # the session never notices
        async with connect(second) as other:
            assert incarnation_in(await created(other)) == "one.1"


@pytest.mark.parametrize("path", ["/v1/other", "/v1/realtime/x", "//", "/v1/replica?kind=other"])
async def test_what_is_not_there_is_told(path):
    async with fleet(num=1) as (url, _):
        status, told, _ = await fetched(url, path)
        assert (status, told.count("\n")) in {(404, 1), (400, 1)}


async def test_a_proxy_of_the_environment_does_not_stand_before_replicas(monkeypatch):
    """It is for the world outside; an edge's link asks none either."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with fleet(num=1) as (_, servers):
        assert len(servers) == 1  # it answers, or `fleet` waits in vain


async def test_nobody_there_is_not_ready():
    async with directing() as (url, _):
        assert (await fetched(url, "/readyz"))[0] == 503
        assert (await fetched(url, "/healthz"))[0] == 200


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
    """Another program has the port of a replica: nobody is sent there, and the rest goes on."""
    mute, there = answering(with_bytes=told)
    with mute:
        async with (
            running(opening(), 8, name="one.1") as (address, _),
            directing() as (url, roster),
        ):
            good = address.removesuffix("/v1/realtime")
            roster.set([there, "ws://h:port", "ws://[::1", good])
            await until(lambda: all(k.silent_since for k in roster.known if k.address != good))
            await until(lambda: roster.candidates)
            async with connect(url) as ws:
                assert incarnation_in(await created(ws)) == "one.1"


async def test_one_that_left_and_came_back_is_open_again_to_who_follows():
    """Its address stayed in a list that could not be read meanwhile."""
    async with AsyncExitStack() as stack:
        address, _ = await stack.enter_async_context(running(opening(), 8, name="one.1"))
        first, known = await stack.enter_async_context(directing(address))
        source = first.replace("ws", "http", 1).removesuffix("/v1/realtime")
        _, roster = await stack.enter_async_context(directing(sources=[source]))
        await until(lambda: roster.candidates)
        one = address.removesuffix("/v1/realtime")
        known.leave(one)
        await until(lambda: roster.candidates[0].is_leaving)
        known.set([])
        known.set([one])
        await until(lambda: not roster.candidates[0].is_leaving)
        assert [candidate.address for candidate in roster.candidates] == [one]


async def test_an_old_ticket_in_an_address_is_not_taken_along():
    async with fleet(num=1, max_sessions=4, api_key=KEY) as (url, _):
        bearer = {"Authorization": "Bearer bob"}
        _, told, _ = await fetched(url, "/v1/replica?ticket=old&model=m", bearer)
        address = json.loads(told)["url"]
        assert "model=m" in address
        async with connect(address) as ws:
            await created(ws)


@pytest.mark.parametrize(
    "url", ["h:8765", "server-0", "ws://", "ws://h:port", "ftp://h", "ws://[::1"]
)
def test_an_address_that_is_none_is_told_at_the_start(url):
    with pytest.raises(ConfigError, match=r"--replicas is .*; give ws://HOST:PORT of a replica"):
        DirectorOptions(replicas=(url,))


def test_a_path_that_is_no_ascii_is_refused():
    """websockets 15 hands it on; it has no place in a redirect."""
    with pytest.raises(UnicodeEncodeError):
        url_of(Request("/v1/realtime?x=\udc80", Headers()))
    assert url_of(Request("/v1/realtime?x=%80", Headers())).query == "x=%80"


async def test_ids_of_two_sessions_of_one_replica_differ():
    """Their first part, the replica's name, is the same; none says enough to resume."""
    name = incarnation_of("server-1")
    async with (
        running(opening(), 2, name=name) as (url, _),
        connect(url) as one,
        connect(url) as two,
    ):
        events = [json.loads(await ws.recv()) for ws in (one, two)]
    names = {event["event_id"].split("_")[1] for event in events}
    assert len(names) == 2
    secrets = {event["session"]["id"].rpartition("_")[2] for event in events}
    assert {secret[:8] for secret in secrets} == names


async def test_a_ticket_is_for_one_replica_where_none_has_a_name():
    """Each is another process, and so is the next one at the same address."""
    async with fleet(num=2, max_sessions=4, api_key=KEY, name="") as (url, servers):
        _, told, _ = await fetched(url, "/v1/replica", {"Authorization": "Bearer bob"})
        address = json.loads(told)["url"]
        mine, _, ticket = address.partition("?")
        (other,) = servers.keys() - {mine}
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"{other}?{ticket}")
        assert refused.value.response.status_code == 401
        async with connect(address) as ws:
            assert not incarnation_in(await created(ws))
