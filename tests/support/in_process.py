"""A server of ours in this process: its port, while it runs."""

from contextlib import asynccontextmanager

import anyio

from streamer.net.service.service import Address


@asynccontextmanager
async def in_process(server, port=0):
    async def run(task_status):
        await server.run(Address(port=port), task_status.started)

    async with anyio.create_task_group() as group:
        yield await group.start(run)
        server.stop()
