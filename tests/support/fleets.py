"""A director over real servers in this process, whose sessions are scripted."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import anyio
from fake_session import opening
from patience import until
from wire import http, running

from streamer.extras.fleet.director import Director
from streamer.extras.fleet.replicas import Roster, follow
from streamer.net.service.admission import incarnation_of
from streamer.net.service.service import Address

KEY = "alice,bob"


@asynccontextmanager
async def directing(*addresses, api_key=None, sources=()):
    """A director over these: (its websocket address, its roster)."""
    roster = Roster()
    roster.set(a.removesuffix("/v1/realtime") for a in addresses)
    beside = partial(follow, roster, sources, None) if sources else anyio.sleep_forever
    port = asyncio.get_running_loop().create_future()
    director = Director(roster, api_key, beside)
    task = asyncio.create_task(director.run(Address(port=0), port.set_result))
    try:
        yield f"ws://127.0.0.1:{await port}/v1/realtime", roster
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


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
        await until(lambda: len(roster.answering) == num)
        yield url, servers


async def created(ws):
    return json.loads(await ws.recv())["session"]["id"]


async def fetched(*arguments):
    return await asyncio.to_thread(http, *arguments)
