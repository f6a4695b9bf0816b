"""What we add to websockets, byte by byte, by raw sockets against both services: upgrades, refusals,
subprotocols, no compression, pings, fragments, closes, limits. After each case the service serves."""

import asyncio
import base64
import os

import pytest
from raw import ACCEPT, BINARY, CLOSE, PING, PONG, TEXT, Raw, frame, port_of, request

from streamer.core.link import wire as link
from streamer.net.realtime.server import PATH

SERVICES = ("realtime", "verifier")
PATHS = {"realtime": PATH, "verifier": f"{link.PATH}?{link.VERSION_QUERY}={link.VERSION}"}


WRONG = {  # name -> (what is changed, the status of the answer)
    "another path": ({"path": "/nowhere"}, 404),
    "version 8": ({"Sec-WebSocket-Version": "8"}, 400),
    "no version": ({"Sec-WebSocket-Version": None}, 400),
    "no key": ({"Sec-WebSocket-Key": None}, 400),
    "a key of 15 bytes": ({"Sec-WebSocket-Key": base64.b64encode(bytes(15)).decode()}, 400),
    "a key that is no base64": ({"Sec-WebSocket-Key": "?" * 24}, 400),
    "no Upgrade": ({"Upgrade": None}, 426),
    "another Upgrade": ({"Upgrade": "h2c"}, 426),
    "a POST with a body": ({"method": "POST", "Content-Length": "3"}, 405),
    "a POST in chunks": ({"method": "POST", "Transfer-Encoding": "chunked"}, 405),
    "a GET with a body": ({"Content-Length": "70000"}, 426),
    "a POST elsewhere": ({"path": "/nowhere", "method": "POST", "Content-Length": "3"}, 404),
    "an escape in the path": ({"path": "/\x1b[31m"}, 400),
    "a null byte in the query": ({"path": "/?a=\x00"}, 400),
    "no Connection": ({"Connection": None}, 426),
    "POST": ({"method": "POST"}, 405),
    "HTTP/1.0": ({"version": "HTTP/1.0"}, 505),
    "a foreign Origin": ({"Origin": "http://evil.example"}, 403),
    "null Origin": ({"Origin": "null"}, 403),
    "two Origins": ({"Origin": "http://a\r\nOrigin: http://b"}, 400),
    "two keys": ({"Authorization": "Bearer a\r\nAuthorization: Bearer b"}, 400),
    "a header of 20,000 bytes": ({"X": "x" * 20_000}, 431),
    "200 headers": ({f"X-{i}": "x" for i in range(200)}, 431),
    "a folded header": ({"X": "a\r\n b"}, None),
    "a header without a name": ({"": "x"}, None),
    "a path of 20,000 bytes": ({"path": "/" + "x" * 20_000}, 414),
}


@pytest.mark.parametrize("service", SERVICES)
async def test_what_is_no_upgrade_is_refused_before_it(service):
    """By plain HTTP in one line, or, where nothing can be made of it, by the end of the socket.
    None of them holds a place, not for a moment: there are fewer places than cases."""
    async with port_of(service) as port:
        for name, (changed, status) in WRONG.items():
            data = request(**{"path": PATHS[service], **changed})
            async with Raw.to(port, data) as raw:
                found, headers = await raw.head()
                assert found == status, f"{name}: {found} {headers}"
                assert found is None or headers["connection"] == "close", name
        await serves(port, service)


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01\x02\x00\x01", b"\r\n\r\n", b"GET\r\n\r\n", b"\x00" * 9_000]
)
async def test_what_is_no_http_ends_the_socket(data):
    async with port_of("realtime") as port:
        async with Raw.to(port, data) as raw:
            raw.writer.write_eof()
            found, _ = await raw.head()
            assert found in (None, 400, 414)
        await serves(port, "realtime")


async def serves(port, service):
    """Somebody healthy is served."""
    async with Raw.to(port, request(PATHS[service])) as raw:
        status, headers = await raw.head()
        assert (status, headers["sec-websocket-accept"]) == (101, ACCEPT)
        raw.writer.write(frame(PING, b"there?"))
        assert await raw.until(PONG) == b"there?"


OFFERS = {  # what is offered -> what is chosen
    None: None,
    "realtime": "realtime",
    "openai-insecure-api-key.SECRET, realtime": "realtime",
    "realtime, openai-insecure-api-key.SECRET, openai-beta.realtime-v1": "realtime",
    "chat": None,
    "REALTIME": None,
}


async def test_subprotocols_and_compression():
    """A key that comes as a subprotocol is never said back; compression is never agreed to."""
    async with port_of("realtime", api_key="SECRET", max_sessions=32) as port:
        for offer, chosen in OFFERS.items():
            for extensions in (None, "permessage-deflate; client_max_window_bits", "x-unknown"):
                headers = {
                    "Authorization": "Bearer SECRET",
                    "Sec-WebSocket-Protocol": offer,
                    "Sec-WebSocket-Extensions": extensions,
                }
                async with Raw.to(port, request(PATH, headers)) as raw:
                    status, found = await raw.head()
                    assert status == 101, offer
                    assert found.get("sec-websocket-protocol") == chosen, offer
                    assert "sec-websocket-extensions" not in found
                    assert "SECRET" not in str(found)
                    raw.writer.write(frame(CLOSE, (1000).to_bytes(2, "big")))
                    await raw.until(CLOSE)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer WRONG"}, 401),
        ({"Authorization": "Basic SECRET"}, 401),
        ({"Authorization": "bearer SECRET"}, 101),
        ({"Sec-WebSocket-Protocol": "openai-insecure-api-key.SECRET"}, 101),
        ({"Sec-WebSocket-Protocol": "openai-insecure-api-key.secret"}, 401),
        ({"Sec-WebSocket-Protocol": "openai-insecure-api-key."}, 401),
        ({"Authorization": "Bearer \xff"}, 401),
    ],
)
async def test_keys(headers, status):
    async with (
        port_of("realtime", api_key="SECRET") as port,
        Raw.to(port, request(PATH, headers)) as raw,
    ):
        assert (await raw.head())[0] == status


def close(code=None, reason=b""):
    return frame(CLOSE, b"" if code is None else code.to_bytes(2, "big") + reason)


CLOSES = {  # what a client sends -> the code that it is closed with; None: a close without one
    "1000": (close(1000), 1000),
    "1000 with a reason": (close(1000, "说完了".encode()), 1000),
    "1001": (close(1001), 1001),
    "3000": (close(3000), 3000),
    "4999": (close(4999), 4999),
    "without a code": (close(), None),
    "and then more": (close(1000) + frame(TEXT, b"{}") + frame(PING, b"x"), 1000),
    "in the midst of fragments": (frame(TEXT, b"{", fin=False) + close(1000), 1002),
    "1005": (close(1005), 1002),
    "1006": (close(1006), 1002),
    "1015": (close(1015), 1002),
    "5000": (close(5000), 1002),
    "a reason that is not UTF-8": (close(1000, b"\xff"), 1007),
    "compressed, though nobody agreed": (frame(TEXT, b"{}", rsv=4), 1002),
    "a ping in fragments": (frame(PING, b"x", fin=False), 1002),
    "opcode 5": (frame(5, b"x"), 1002),
}


@pytest.mark.parametrize("service", SERVICES)
async def test_closes(service):
    """Answered with the same code, or with the one that says what is wrong; then the socket ends."""
    async with port_of(service, max_sessions=32) as port:
        for name, (data, code) in CLOSES.items():
            async with Raw.to(port, request(PATHS[service])) as raw:
                assert (await raw.head())[0] == 101
                raw.writer.write(data)
                payload = await raw.until(CLOSE)
                assert payload is not None, name
                assert (int.from_bytes(payload[:2], "big") or None) == code, name
                assert await raw.frame() is None, f"{name}: more behind the close"
        await serves(port, service)


async def test_pings_and_fragments():
    """Pings are answered in the midst of a message, with what they hold; a message in pieces of a
    byte is one message."""
    whole = b'{"type": "response.cancel"}'
    pieces = [frame(TEXT if i == 0 else 0, whole[i : i + 1], fin=False) for i in range(len(whole))]
    data = b"".join(piece + frame(PING, bytes([i])) for i, piece in enumerate(pieces))
    pings = frame(PING) + frame(PING, bytes(125)) + frame(PONG, b"nobody asked")
    async with port_of("realtime") as port, Raw.to(port, request(PATHS["realtime"])) as raw:
        assert (await raw.head())[0] == 101
        raw.writer.write(pings + data + frame(0, b""))
        pongs = [await raw.until(PONG) for _ in range(2)]
        assert pongs == [b"", bytes(125)]
        answered, seen = False, []
        while not answered or len(seen) < len(whole):
            first, payload = await raw.frame()
            if first & 0x0F == PONG:
                seen.append(payload)
            else:
                answered |= b"response_cancel_not_active" in payload
        assert seen == [bytes([i]) for i in range(len(whole))]


LIMITS = {
    "realtime": [
        (frame(TEXT, b"x" * (5 << 20))[: 1 << 20], None),
        (frame(TEXT, b"x" * ((5 << 20) + 1))[: 1 << 10], 1009),
        (b"\x82\xff" + b"\x7f" * 8, 1009),
    ],
    "verifier": [
        (frame(BINARY, bytes(link.MAX_MESSAGE_BYTES + 1)), 1009),
        (frame(TEXT, b"{}"), 1008),
        (frame(BINARY, b""), 1008),
        (frame(BINARY, os.urandom(100)), 1008),
    ],
}


@pytest.mark.parametrize("service", SERVICES)
async def test_limits(service):
    """Beyond them a socket is closed with the code that says so; at them it is not."""
    async with port_of(service) as port:
        for data, code in LIMITS[service]:
            async with Raw.to(port, request(PATHS[service])) as raw:
                assert (await raw.head())[0] == 101
                raw.writer.write(data)
                if code is None:  # a message that is still coming
                    raw.writer.write_eof()
                    continue
                payload = await raw.until(CLOSE)
                assert payload is not None
                assert int.from_bytes(payload[:2], "big") == code
        await serves(port, service)


async def test_a_place_is_refused_before_the_upgrade_and_free_again_behind_a_close():
    async with port_of("realtime", max_sessions=1) as port:
        async with Raw.to(port, request(PATH)) as first:
            assert (await first.head())[0] == 101
            async with Raw.to(port, request(PATH)) as second:
                status, headers = await second.head()
                assert (status, headers["retry-after"]) == (503, "5")
            first.writer.write(close(1000))
            await first.until(CLOSE)
        for _ in range(200):
            async with Raw.to(port, request(PATH)) as third:
                if (await third.head())[0] == 101:
                    return
            await asyncio.sleep(0.02)
        pytest.fail("no place")
