"""A server of ours in this process. In: the server. Out: its port, while it runs."""

from contextlib import asynccontextmanager

import anyio

from streamer.net.service.service import Address


@asynccontextmanager
async def in_process(server, port=0):
    ports, is_ready = [], anyio.Event()

    def ready(found):
        ports.append(found)
        is_ready.set()

    async with anyio.create_task_group() as group:
        group.start_soon(server.run, Address(port=port), ready)
        await is_ready.wait()
        yield ports[0]
        server.stop()
