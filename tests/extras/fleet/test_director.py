"""A director before real servers: where it sends clients, and what it says of replicas."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import openai
import pytest
from fake_session import opening
from far import free_port
from patience import PATIENCE_S, until
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus, SecurityError
from wire import http, in_process, running, session_update

from streamer.extras.fleet import director as of_director
from streamer.extras.fleet.director import Director, Known
from streamer.net.service.admission import incarnation_in, incarnation_of
from streamer.net.service.http import HANDSHAKE_S

KEY = "alice,bob"


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """A busy machine's silence is none."""
    monkeypatch.setattr(of_director, "SILENCE_S", 10.0)


@asynccontextmanager
async def directing(*addresses, api_key=None):
    """A director over these: (its websocket address, itself)."""
    known = {at: Known(at) for at in (a.removesuffix("/v1/realtime") for a in addresses)}
    director = Director(known, api_key, anyio.sleep_forever)
    async with in_process(director) as port:
        yield f"ws://127.0.0.1:{port}/v1/realtime", director


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
        url, director = await stack.enter_async_context(directing(*servers, api_key=api_key))
        await until(lambda: len(director.answering) == num)
        yield url, servers


async def created(ws):
    return json.loads(await ws.recv())["session"]["id"]


async def fetched(*arguments):
    return await asyncio.to_thread(http, *arguments)


async def test_clients_are_spread_and_one_too_many_is_refused_at_once():
    async with fleet() as (url, servers), AsyncExitStack() as stack:
        ids = []
        for _ in range(4):
            ids.append(await created(await stack.enter_async_context(connect(url))))
        counts = [server._admission.num_sessions for server in servers.values()]
        assert counts == [2, 2]
        names = {server._admission.name for server in servers.values()}
        assert {incarnation_in(session_id) for session_id in ids} == names
        with anyio.fail_after(PATIENCE_S):  # it knows places a poll late
            while 'places_free{kind="server"} 0.0' not in (await fetched(url, "/metrics"))[1]:
                await anyio.sleep(0.05)
        with anyio.fail_after(HANDSHAKE_S / 2), pytest.raises(InvalidStatus) as refused:
            await connect(url)
        assert refused.value.response.status_code == 503
        assert refused.value.response.headers["Retry-After"] == "1"
        assert refused.value.response.body.startswith(b"every server is full, or none is there")


async def test_a_session_is_resumed_where_it_is_and_ends_with_its_replica():
    """An id of an earlier start of a replica, at the same address, is gone, too."""
    port = free_port()
    async with directing(f"ws://127.0.0.1:{port}") as (url, director):
        ids = []
        for _ in range(2):
            name = incarnation_of("server-0")
            async with running(opening(), at=port, name=name):
                await until(lambda: director.answering)
                for old in ids:
                    assert (await fetched(url, f"/v1/replica?resume={old}"))[0] == 404
                ws = await connect(url)
                ids.append(await created(ws))
                await ws.send(session_update(binary=True))
                ws.transport.abort()
                async with connect(f"{url}?resume={ids[-1]}&event=1") as again:
                    assert json.loads(await again.recv())["type"] == "streamer.resumed"
            await until(lambda: not director.answering)
            status, told, _ = await fetched(url, f"/v1/replica?resume={ids[-1]}")
            assert (status, told) == (404, "the replica of this session is gone; connect anew\n")
        assert len(set(ids)) == 2


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
        old = "/v1/replica?ticket=old&model=m"  # the new ticket replaces an old one
        _, told, _ = await fetched(url, old, {"Authorization": "Bearer bob"})
        address = json.loads(told)["url"]
        assert "bob" not in address
        assert "model=m" in address
        async with connect(address) as ws:  # as a browser would
            await created(ws)
        with pytest.raises(InvalidStatus) as refused:
            await connect(address)
        assert refused.value.response.status_code == 401


async def test_the_official_client_asks_first_since_it_follows_no_redirect():
    """It refuses a redirect to another address, to keep its key; with the address it connects."""
    async with fleet(num=1, max_sessions=4) as (url, _):
        base = url.replace("ws", "http", 1).removesuffix("/realtime")
        client = openai.AsyncOpenAI(api_key="none", base_url=base)
        with pytest.raises(SecurityError, match="Cross-origin"):
            await client.realtime.connect(model="streamer").enter()
        address = json.loads((await fetched(url, "/v1/replica"))[1])["url"]
        base = address.removesuffix("/realtime")
        client = openai.AsyncOpenAI(api_key="none", websocket_base_url=base)
        async with client.realtime.connect(model="streamer") as connection:
            assert json.loads(await connection.recv_bytes())["type"] == "session.created"


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
        assert "audio_lag_seconds" not in metrics, "it hears none"
        assert 'streamer_fleet_replicas{kind="verifier"} 0.0' in metrics
