"""A link that can be cut. In: a server's port. Out: another port, before it, and `cut`: both sides
lose the connection."""

import asyncio
import contextlib


class CutLink:
    """Passes bytes between clients and a server, until `cut`, or `max_bytes` of a connection went
    to the server."""

    def __init__(self, port):
        self.server_port, self.num_cuts = port, 0
        self.max_bytes = None  # per connection, then it is cut
        self._writers = set()

    def cut(self):
        """Without a goodbye, whatever is under way."""
        self.num_cuts += 1
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader, writer):
        sides = {writer}
        self._writers.add(writer)
        try:
            # a server that is gone refuses
            with contextlib.suppress(OSError):
                there, back = await asyncio.open_connection("127.0.0.1", self.server_port)
                sides.add(back)
                self._writers.add(back)
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pass(reader, back, self.max_bytes))
                    group.create_task(self._pass(there, writer, None))
        finally:
            self._writers -= sides
            for side in sides:
                side.transport.abort()

    async def _pass(self, reader, writer, max_bytes):
        num = 0
        with contextlib.suppress(OSError):
            while data := await reader.read(4_096):
                num += len(data)
                if max_bytes is not None and num > max_bytes:
                    self.cut()
                writer.write(data)
                await writer.drain()
            writer.write_eof()


@contextlib.asynccontextmanager
async def cutting(url):
    """(the address of a CutLink before the server at `url`, the CutLink)."""
    host, _, rest = url.removeprefix("ws://").partition("/")
    link = CutLink(int(host.rpartition(":")[2]))
    tasks = set()

    async def serve(reader, writer):
        tasks.add(asyncio.current_task())
        await link.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/{rest}", link
    finally:
        server.close()
        link.cut()
        await asyncio.gather(*tasks, return_exceptions=True)
