"""HTTP and websocket frames by hand. In: bytes. Out: what a server says to them."""

from __future__ import annotations

import asyncio
import base64
import contextlib

from fake_session import opening
from websockets.frames import Frame
from websockets.utils import accept_key
from wire import running

KEY = base64.b64encode(bytes(range(16))).decode()
ACCEPT = accept_key(KEY)
WITHIN_S = 20.0
UPGRADE = {"Host": "127.0.0.1", "Connection": "Upgrade", "Upgrade": "websocket"}
UPGRADE |= {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": KEY}


@contextlib.asynccontextmanager
async def realtime(**options):
    """The port of a scripted server."""
    async with running(opening(), **options) as (url, _):
        yield int(url.split(":")[2].partition("/")[0])


def request(path, headers=None, method="GET", version="HTTP/1.1", **changed):
    """The bytes of a request; headers whose value is None are left out."""
    lines = UPGRADE | (headers or {}) | changed
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value is not None)
    return f"{method} {path} {version}\r\n{text}\r\n".encode()


class Raw:
    """A socket of ours, without a websocket library."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, port, data):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        try:
            async with asyncio.timeout(WITHIN_S):
                yield cls(reader, writer)
        finally:
            writer.transport.abort()

    async def head(self):
        """(status, headers in lower case) of an answer; (None, {}) where the socket is closed."""
        try:
            text = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        except (asyncio.IncompleteReadError, ConnectionError):
            return None, {}
        first, *lines = text.strip().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        return int(first.split()[1]), {name.lower(): value for name, value in pairs}

    async def frame(self):
        """(opcode with its flags, payload), or None at the end."""
        try:
            first, size = await self.reader.readexactly(2)
            assert not size & 0x80, "a server masks nothing"
            if size == 126:
                size = int.from_bytes(await self.reader.readexactly(2), "big")
            elif size == 127:
                size = int.from_bytes(await self.reader.readexactly(8), "big")
            return first, await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def until(self, opcode):
        """The payload of the next frame of this opcode; None at the end."""
        while (found := await self.frame()) is not None:
            if found[0] & 0x0F == opcode:
                return found[1]
        return None


def frame(opcode, data=b"", fin=True):
    """A client's, masked."""
    return Frame(opcode, data, fin).serialize(mask=True)


TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
