"""The official client through a real HAProxy with deploy/haproxy.cfg, before real servers."""

import asyncio
import json
import subprocess
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress

import pytest
from fake_session import opening
from far import free_port
from patience import PATIENCE_S
from places import ROOT
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from wire import http, running, session_update

from streamer.net.service.admission import incarnation_in, incarnation_of

KEY = "alice,bob"


@contextmanager
def haproxy(folder, front, backs):
    """It, with our file on other ports."""
    text = (ROOT / "deploy" / "haproxy.cfg").read_text("utf-8").replace(":8760", f":{front}")
    text = text.replace("fall 1 ", "fall 99 ")  # a busy machine answers a check late
    for i, back in enumerate(backs):
        text = text.replace(f"127.0.0.1:{9_100 + i}", f"127.0.0.1:{back}")
    file = folder / "haproxy.cfg"
    file.write_text(text)
    process = subprocess.Popen(["haproxy", "-db", "-f", file], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def status_of(url):
    """The status of /readyz; None where nothing listens."""
    with suppress(OSError):
        return http(url, "/readyz")[0]


@asynccontextmanager
async def proxied(folder, max_sessions=2):
    """(the proxy's address, the servers)."""
    front, *backs = {free_port() for _ in range(9)}
    async with AsyncExitStack() as stack:
        servers = []
        for i, port in enumerate(backs[:3]):
            name = incarnation_of(f"server-{i + 1}")
            one = running(opening(), max_sessions, api_key=KEY, at=port, name=name)
            servers.append((await stack.enter_async_context(one))[1])
        stack.enter_context(haproxy(folder, front, backs[:3]))
        url = f"ws://127.0.0.1:{front}/v1/realtime"
        async with asyncio.timeout(PATIENCE_S):
            while await asyncio.to_thread(status_of, url) != 200:
                await asyncio.sleep(0.05)
        yield url, servers


def keyed(url, key="alice"):
    return connect(url, additional_headers={"Authorization": f"Bearer {key}"})


async def created(ws):
    return json.loads(await ws.recv())["session"]["id"]


async def test_newcomers_spread_the_full_are_passed_over_and_ids_lead_back(tmp_path):
    async with proxied(tmp_path) as (url, servers), AsyncExitStack() as stack:
        links = [await stack.enter_async_context(keyed(url)) for _ in range(6)]
        ids = [await created(ws) for ws in links]
        assert [server._admission.num_sessions for server in servers] == [2, 2, 2]
        with pytest.raises(InvalidStatus) as refused:
            await keyed(url)
        assert refused.value.response.status_code == 503
        for ws, session_id in list(zip(links, ids, strict=True))[:3]:
            await ws.send(session_update(binary=True))
            ws.transport.abort()
            async with keyed(f"{url}?resume={session_id}&event=1") as again:
                assert json.loads(await again.recv())["type"] == "streamer.resumed"
        gone = f"sess_{incarnation_of('server-1')}_0"
        assert incarnation_in(gone).startswith("server-1.")
        with pytest.raises(InvalidStatus) as refused:
            await keyed(f"{url}?resume={gone}")
        assert refused.value.response.status_code == 404
