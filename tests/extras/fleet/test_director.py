"""A director before real servers with scripted sessions: where it sends clients, and refusals."""

import json
import socket
from contextlib import AsyncExitStack

import anyio
import openai
import pytest
from fake_session import opening
from fleets import KEY, created, directing, fetched, fleet, until
from patience import PATIENCE_S
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus, SecurityError
from wire import running, session_update

from streamer.extras.fleet import replicas as of_roster
from streamer.net.service.admission import HANDSHAKE_S, incarnation_in, incarnation_of

pytestmark = pytest.mark.usefixtures("patient")


async def test_clients_are_spread_and_one_too_many_is_refused_at_once():
    async with fleet() as (url, servers), AsyncExitStack() as stack:
        ids = []
        for _ in range(4):
            ids.append(await created(await stack.enter_async_context(connect(url))))
        counts = [server._admission.num_sessions for server in servers.values()]
        assert counts == [2, 2]
        names = {server._admission.name for server in servers.values()}
        assert {incarnation_in(session_id) for session_id in ids} == names
        with anyio.fail_after(HANDSHAKE_S / 2), pytest.raises(InvalidStatus) as refused:
            await connect(url)
        assert refused.value.response.status_code == 503
        assert refused.value.response.headers["Retry-After"] == "1"
        assert refused.value.response.body.startswith(b"every server is full, or none is there")


async def test_a_client_that_leaves_frees_its_place(monkeypatch):
    monkeypatch.setattr(of_roster, "HANDSHAKE_S", 1.0)
    async with fleet(num=1, max_sessions=1) as (url, _):
        for _ in range(3):
            async with connect(url) as ws:
                await created(ws)
                assert (await fetched(url, "/v1/replica"))[0] == 503, "the only place is taken"
            with anyio.fail_after(PATIENCE_S):
                while (await fetched(url, "/v1/replica"))[0] != 200:
                    await anyio.sleep(0.05)
                # a place was promised to a client that never comes
                while 'places_free{kind="server"} 1.0' not in (await fetched(url, "/metrics"))[1]:
                    await anyio.sleep(0.05)


async def test_a_tenant_over_its_share_takes_no_place_of_others():
    """The replica refuses it, and it returns at once through the director, each time."""
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


async def test_a_session_is_resumed_where_it_is_and_nowhere_else():
    async with fleet(num=3) as (url, servers):
        ws = await connect(url)
        session_id = await created(ws)
        await ws.send(session_update(binary=True))
        ws.transport.abort()
        async with connect(f"{url}?resume={session_id}&event=1&bytes=0") as again:
            assert json.loads(await again.recv())["type"] == "streamer.resumed"
        assert sum(server._admission.num_admitted for server in servers.values()) == 1


async def test_a_session_of_a_lost_replica_ends_at_once():
    """And so is one of an earlier start of the replica, at the same address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with directing(f"ws://127.0.0.1:{port}") as (url, roster):
        ids = []
        for _ in range(2):
            name = incarnation_of("server-0")
            async with running(opening(), at=port, name=name):
                await until(lambda: roster.answering)
                for old in ids:
                    assert (await fetched(url, f"/v1/replica?resume={old}"))[0] == 404
                async with connect(url) as ws:
                    ids.append(await created(ws))
            await until(lambda: not roster.answering)
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
        client = openai.AsyncOpenAI(
            api_key="none", websocket_base_url=address.removesuffix("/realtime")
        )
        async with client.realtime.connect(model="streamer") as connection:
            event = json.loads(await connection.recv_bytes())
            assert event["type"] == "session.created"
