"""Malformed websocket frames, byte by byte: a protocol close or an error, and nobody else
notices."""

import asyncio
import contextlib
import json

import pytest
from patience import PATIENCE_S
from speech import speech
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from wire import describe, http, pcm, session_update, text_of, until, validate


def frame(opcode, data=b"", fin=True, rsv=0, is_masked=True, length=None):
    """RFC 6455 section 5.2, with whatever is wrong in it; the mask is zero."""
    n, mask = len(data) if length is None else length, 0x80 if is_masked else 0
    if n < 126:
        size = bytes([mask | n])
    elif n < 65_536:
        size = bytes([mask | 126]) + n.to_bytes(2, "big")
    else:
        size = bytes([mask | 127]) + n.to_bytes(8, "big")
    return (
        bytes([(0x80 if fin else 0) | (rsv << 4) | opcode])
        + size
        + (bytes(4) if is_masked else b"")
        + data
    )


MALFORMED = {
    "unmasked": (frame(1, b"{}", is_masked=False), 1002),
    "rsv1": (frame(1, b"{}", rsv=4), 1002),
    "rsv2": (frame(1, b"{}", rsv=2), 1002),
    "opcode 3": (frame(3), 1002),
    "opcode 11": (frame(11), 1002),
    "continuation of nothing": (frame(0, b"x"), 1002),
    "a message inside another": (frame(1, b"a", fin=False) + frame(1, b"b"), 1002),
    "ping in fragments": (frame(9, fin=False), 1002),
    "ping of 126 bytes": (frame(9, bytes(126)), 1002),
    "close of one byte": (frame(8, b"\x03"), 1002),
    "close with a code that is none": (frame(8, (999).to_bytes(2, "big")), 1002),
    "close with text that is not UTF-8": (frame(8, (1000).to_bytes(2, "big") + b"\xff"), 1007),
    "text that is not UTF-8": (frame(1, b"\xff\xfe"), 1007),
    "half a character": (frame(1, b'{"type":"\xe4\xb8', fin=False) + frame(0, b'"}'), 1007),
    "2 GiB announced": (frame(2, length=2**31), 1009),
    "2^63 announced": (frame(2, length=2**63), 1002),
    "23 MiB": (frame(1, length=23 << 20), 1009),
    "fragments beyond 5 MiB": (
        frame(1, b"x" * (3 << 20), fin=False) + frame(0, length=3 << 20),
        1009,
    ),
    "100 empty fragments": (
        frame(1, fin=False) + 100 * frame(0, fin=False) + frame(0, b"{}"),
        None,
    ),
    "pongs that nobody asked for": (100 * frame(10, bytes(100)) + frame(1, b"{}"), None),
}


async def test_malformed_frames_close_one_connection(server):
    """`None`: nothing is wrong with the frames, so the text in them is answered with an error."""
    async with connect(server) as healthy:
        await healthy.send(session_update(binary=True))
        for name, (data, code) in MALFORMED.items():
            async with connect(server, compression=None) as ws:
                await until(ws, "session.created")
                ws.transport.write(data)
                if code is None:
                    validate((await until(ws, "error"))[-1])
                    continue
                with pytest.raises(ConnectionClosed) as closed:
                    await until(ws, "never")
                told = closed.value.rcvd.code if closed.value.rcvd else 1006
                assert told in ({code, 1002, 1009} if "announced" in name else {code}), name
        ws = await connect(server)
        ws.transport.write(frame(2, bytes(100))[:50])  # and one that is cut
        ws.transport.abort()
        assert text_of(await describe(healthy, pcm(speech(3, 1))))


async def test_thousands_of_requests_before_the_first_answer_is_read(server):
    """A pong stands behind them all: who sends fast and reads is not deaf."""
    async with connect(server, ping_interval=None) as ws:
        await until(ws, "session.created")
        for _ in range(20_000):
            await ws.send("{}")
        for _ in range(20_000):
            event = json.loads(await asyncio.wait_for(ws.recv(), PATIENCE_S))
            assert event["type"] == "error"
        await (await ws.ping())


@pytest.mark.parametrize("path", ["//[", "/%zz", "/\x00"])
async def test_an_address_that_cannot_be_read(server, path):
    host, port = server.removeprefix("ws://").partition("/")[0].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    status = int((await asyncio.wait_for(reader.readline(), PATIENCE_S)).split()[1])
    assert 400 <= status < 500
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    assert http(server, "/healthz")[0] == 200
