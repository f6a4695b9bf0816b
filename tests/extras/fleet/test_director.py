"""A director before real servers: where clients go; how many replicas there should be; options."""

import asyncio
import itertools
import json
import math
import subprocess
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress

import anyio
import openai
import pytest
from far import free_port
from places import ROOT
from processes import PATIENCE_S, until
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus, SecurityError
from wire import http, in_process, opening, running, session_update

from streamer.cli import build_parser
from streamer.config import ConfigError
from streamer.core.declare import read_toml
from streamer.extras.fleet import director as of_director
from streamer.extras.fleet.command import of, plan_of
from streamer.extras.fleet.director import Director, Known, ReplicaStatus, choose
from streamer.extras.fleet.manager import PlacingOptions, Scaler
from streamer.net.service.service import HANDSHAKE_S

KEY = "alice,bob"


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """A busy machine's silence is none."""
    monkeypatch.setattr(of_director, "SILENCE_S", 10.0)


@asynccontextmanager
async def directing(*addresses, api_key=None):
    """A director over these: (its websocket address, itself)."""
    known = {at: Known(at) for at in (a.removesuffix("/v1/realtime") for a in addresses)}
    director = Director(known, api_key)
    async with in_process(director) as port:
        yield f"ws://127.0.0.1:{port}/v1/realtime", director


@contextmanager
def haproxy(folder, servers):
    """The address of one with deploy/haproxy.cfg on other ports."""
    front = free_port()
    text = (ROOT / "deploy" / "haproxy.cfg").read_text("utf-8").replace(":8760", f":{front}")
    text = text.replace("fall 1 ", "fall 99 ")  # a busy machine answers a check late
    for i, server in enumerate(servers):
        text = text.replace(f"127.0.0.1:{9_100 + i}", server.split("/")[2])
    (folder / "haproxy.cfg").write_text(text)
    command = ["haproxy", "-db", "-f", folder / "haproxy.cfg"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield f"ws://127.0.0.1:{front}/v1/realtime"
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


@asynccontextmanager
async def fleet(num=2, max_sessions=2, api_key=None, **more):
    """(a director's address, the servers by their websocket address)."""
    async with AsyncExitStack() as stack:
        servers = {}
        for i in range(num):
            options = {"api_key": api_key, "name": f"server-{i + 1}"} | more
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
        assert [len(server.sessions) for server in servers.values()] == [2, 2]
        names = {server._admission.replica for server in servers.values()}
        assert {session_id.split("_")[1] for session_id in ids} == names
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
            async with running(opening(), at=port, name="server-0"):
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
                assert [session.tenant for session in server.sessions] == [key]
            await until(lambda: not server.sessions)
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
        base = json.loads((await fetched(url, "/v1/replica"))[1])["url"].removesuffix("/realtime")
        client = openai.AsyncOpenAI(api_key="none", websocket_base_url=base)
        async with client.realtime.connect(model="streamer") as connection:
            assert json.loads(await connection.recv_bytes())["type"] == "session.created"


async def test_people_find_all_replicas_and_prometheus_its_targets():
    async with fleet(num=2) as (url, servers):
        targets = json.loads((await fetched(url, "/v1/targets"))[1])
        wanted = {address.removeprefix("ws://").partition("/")[0] for address in servers}
        assert {target["targets"][0] for target in targets} == wanted
        assert {t["labels"]["replica"] for t in targets} == {"server-1", "server-2"}
        assert {t["labels"]["kind"] for t in targets} == {"server"}
        rows = json.loads((await fetched(url, "/v1/replicas"))[1])
        assert [row["status"]["limit"] for row in rows] == [2, 2]
        assert (await fetched(url, "/readyz"))[0] == (await fetched(url, "/healthz"))[0] == 200
        metrics = (await fetched(url, "/metrics"))[1]
        assert 'streamer_fleet_replicas{kind="server"} 2.0' in metrics
        assert "audio_lag_seconds" not in metrics, "it hears none"
        assert 'streamer_fleet_replicas{kind="verifier"} 0.0' in metrics


def is_ready(url):
    with suppress(OSError):  # nothing listens yet
        return http(url, "/readyz")[0] == 200


async def test_haproxy_spreads_newcomers_passes_over_the_full_and_follows_ids(tmp_path):
    def keyed(url):
        return connect(url, additional_headers={"Authorization": "Bearer alice"})

    async with fleet(num=3, api_key=KEY) as (_, servers), AsyncExitStack() as stack:
        url = stack.enter_context(haproxy(tmp_path, servers))
        with anyio.fail_after(PATIENCE_S):
            while not await asyncio.to_thread(is_ready, url):
                await anyio.sleep(0.05)
        links = [await stack.enter_async_context(keyed(url)) for _ in range(6)]
        ids = [await created(ws) for ws in links]
        assert [len(server.sessions) for server in servers.values()] == [2, 2, 2]
        with pytest.raises(InvalidStatus) as refused:
            await keyed(url)
        assert refused.value.response.status_code == 503
        for ws, session_id in list(zip(links, ids, strict=True))[:3]:
            await ws.send(session_update(binary=True))
            ws.transport.abort()
            async with keyed(f"{url}?resume={session_id}&event=1") as again:
                assert json.loads(await again.recv())["type"] == "streamer.resumed"
        with pytest.raises(InvalidStatus) as refused:
            await keyed(f"{url}?resume=sess_server-1.000000_0")
        assert refused.value.response.status_code == 404


def replica(number, taken=0, kind="verifier", limit=8, is_draining=False, **more):
    status = ReplicaStatus(f"{kind}-{number}.0", kind, 1, is_draining, taken, limit, 0.0)
    return Known(f"ws://127.0.0.1:{9000 + number}", status=status, **more)


def test_a_newcomer_goes_where_most_places_are_free_and_not_where_none_is():
    found = [replica(1, 3), replica(2, 1), replica(3, 2), replica(4, 0, kind="server")]
    assert choose(found, "verifier") is found[1]
    found[1] = replica(2, 1, sent=5)
    assert choose(found, "verifier") is found[2]
    full = [replica(1, 8), replica(5, 9), replica(6, 1, silent_since=0.0)]
    full += [replica(3, is_leaving=True), replica(4, is_draining=True)]
    assert choose(full, "verifier") is choose(full, "verifier", "edge") is None
    assert choose([], "server") is None
    only, other = replica(1, 6, sent=9), replica(2, 6)
    assert choose([only], "verifier") is only, "clients on their way take no place of others"
    assert choose([only, other], "verifier") is other


def test_an_edge_comes_back_to_its_own_and_edges_spread():
    found = [replica(i) for i in range(8)]
    edges = [f"edge-{i}" for i in range(800)]
    first = {edge: choose(found, "verifier", edge).address for edge in edges}
    assert first == {edge: choose(found[::-1], "verifier", edge).address for edge in edges}
    counts = Counter(first.values())
    assert len(counts) == 8
    assert max(counts.values()) < 1.5 * 100


LIMIT = 16


def replicas(*taken, lag_s=0.0):
    """The status of replicas. taken: places taken at each."""
    return [
        ReplicaStatus(f"server-{i}.0", "server", 1, False, num, LIMIT, lag_s)
        for i, num in enumerate(taken, 1)
    ]


def test_speech_that_waits_calls_for_one_more_and_a_start_is_awaited():
    policy = Scaler(PlacingOptions(most=8))
    late = replicas(1, 1, lag_s=2.0)
    assert policy.decide(late, 0, 100.0) == (1, "2 places taken, 2.0 s of speech unheard")
    assert policy.decide(late, 1, 105.0)[0] == 0, "the pause is not over"
    assert policy.decide(late, 1, 110.0)[0] == 1
    assert policy.decide([], 2, 111.0)[0] == 0


def test_an_hour_up_and_down_again():
    scaler, numbers, ready_at, counts = Scaler(PlacingOptions(most=8)), itertools.count(), {}, []
    for now in range(3_600):
        load = 80 * math.sin(math.pi * now / 3_600) ** 2
        there = [number for number, at in ready_at.items() if at <= now]
        assert not there or load <= LIMIT * len(there)
        found = replicas(*[math.ceil(load / len(there))] * len(there)) if there else []
        change, _ = scaler.decide(found, len(ready_at) - len(there), float(now))
        ready_at |= {next(numbers): now + 20 for _ in range(change)}
        if change < 0:
            del ready_at[max(there)]
        counts.append(len(ready_at))
    top = counts.index(max(counts))
    assert (counts[0], counts[top], counts[-1]) == (1, 7, 1)
    assert counts[:top] == sorted(counts[:top])
    assert counts[top:] == sorted(counts[top:], reverse=True)


def test_the_example_is_one_and_servers_find_verifiers_through_the_director():
    config = read_toml(ROOT / "pipelines" / "fleet.toml", of)
    assert list(config.kinds) == ["verifier", "server"]
    plan = plan_of(config, "alice,bob", "server-2")
    found = vars(build_parser(["serve"]).parse_args(plan.words))
    wanted = {"max_sessions": "16", "mode": "exact", "cloud": "ws://127.0.0.1:8764"}
    wanted |= {"host": "127.0.0.1", "port": "9101", "name": "server-2"}
    assert {name: found[name] for name in wanted} == wanted
    assert plan.address == "ws://127.0.0.1:9101"
    assert plan.keys == {"STREAMER_API_KEY": "alice,bob", "STREAMER_CLOUD_KEY": "alice"}
    assert "alice" not in " ".join(plan.words), "others see a command"


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({}, r"neither \[server\] nor \[verifier\]"),
        ({"servers": {}}, r"servers is no table of a fleet; known are \[ray\], "),
        ({"server": 3}, r"server is no table of a fleet"),
        ({"server": {"leest": 1}}, r"\[server\] unknown key 'leest'; docs"),
        ({"server": {"api_key": "k"}}, r"\[server\] unknown key 'api_key'"),
        ({"server": {"least": 3, "most": 2}}, r"\[server\] least is 3; it may be at most 2"),
        ({"server": {"mode": "exakt"}}, r"\[server\] --mode is 'exakt'; choose one of gated"),
        ({"verifier": {"mode": "exact"}}, r"\[verifier\] unknown key 'mode'"),
        ({"server": {}, "verifier": {}}, r"\[server\] and \[verifier\] share a port; each"),
        ({"server": {}, "director": {"replicas": ["ws://h:1"]}}, r"unknown key 'replicas'"),
    ],
)
def test_what_is_wrong_is_told(tables, told):
    with pytest.raises(ConfigError, match=told) as error:
        of(tables)
    assert "\n" not in str(error.value)
