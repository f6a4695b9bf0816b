"""Both services by raw sockets, where we add to websockets; each case leaves them serving."""

import asyncio
import base64
import contextlib
import socket

import pytest
from fake_session import opening
from patience import PATIENCE_S
from patience import until as wait_until
from raw import ACCEPT, CLOSE, PING, PONG, TEXT, Raw, frame, port_of, request
from wire import running

from streamer.core.link import wire as link
from streamer.net.realtime.server import PATH
from streamer.net.service import http

SERVICES = ("realtime", "verifier")
PATHS = {"realtime": PATH, "verifier": f"{link.PATH}?{link.VERSION_QUERY}={link.VERSION}"}


WRONG = {  # name -> (what is changed, the status of the answer)
    "another path": ({"path": "/nowhere"}, 404),
    "a path that is no address": ({"path": "//["}, 400),
    "version 8": ({"Sec-WebSocket-Version": "8"}, 400),
    "no key": ({"Sec-WebSocket-Key": None}, 400),
    "a key of 15 bytes": ({"Sec-WebSocket-Key": base64.b64encode(bytes(15)).decode()}, 400),
    "no Upgrade": ({"Upgrade": None}, 426),
    "another Upgrade": ({"Upgrade": "h2c"}, 426),
    "a POST with a body": ({"method": "POST", "Content-Length": "3"}, 405),
    "a POST in chunks": ({"method": "POST", "Transfer-Encoding": "chunked"}, 405),
    "a GET with a body": ({"Content-Length": "70000"}, 426),
    "a POST to /healthz": ({"path": "/healthz", "method": "POST", "Content-Length": "3"}, 405),
    "an escape in the path": ({"path": "/\x1b[31m"}, 400),
    "a null byte in the query": ({"path": "/?a=\x00"}, 400),
    "a foreign Origin": ({"Origin": "http://evil.example"}, 403),
    "DNS rebinding": ({"Host": "evil.example", "Origin": "http://evil.example"}, 403),
    "two Origins": ({"Origin": "http://a\r\nOrigin: http://b"}, 400),
    "an escape in a header": ({"X": "a\x1b[31m"}, 400),
    "a header without a name": ({"": "a"}, 400),
    "a path that is not ASCII": ({"path": "/\u8bf4"}, 400),
    "an escape in the method": ({"path": "/healthz", "method": "G\x1b[31mT", "Upgrade": None}, 405),
    "HTTP/2": ({"version": "HTTP/2.0"}, 400),
    "a path of 20,000 bytes": ({"path": "/" + "x" * 20_000}, 414),
}


NO_REQUEST = {  # the bytes of a client that then ends its side -> the status of the answer
    b"": None,
    b"\x16\x03\x01\x02\x00\x01": 400,
    b"\r\n\r\n": 400,
    b"GET\r\n\r\n": 400,
    b"GET /healthz HTTP/1.1\r\n": 400,
    b"\x1b[31m" * 9: 400,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": 400,
    b"\x00" * 9_000: 414,
}


async def serves(port, service):
    """A healthy client is served."""
    async with Raw.to(port, request(PATHS[service])) as raw:
        status, headers = await raw.head()
        assert (status, headers["sec-websocket-accept"]) == (101, ACCEPT)
        raw.writer.write(frame(PING, b"there?"))
        assert await raw.until(PONG) == b"there?"


@pytest.mark.parametrize("service", SERVICES)
async def test_a_request_that_is_no_upgrade_is_refused_before_it(service):
    """By HTTP in one line, or by the end of the socket; none holds a place."""
    async with port_of(service) as port:
        for name, (changed, status) in WRONG.items():
            data = request(**{"path": PATHS[service], **changed})
            async with Raw.to(port, data) as raw:
                found, headers = await raw.head()
                assert found == status, f"{name}: {found} {headers}"
                assert found is None or headers["connection"] == "close", name
        for data, status in NO_REQUEST.items():
            async with Raw.to(port, data) as raw:
                raw.writer.write_eof()
                found, headers = await raw.head()
                assert found == status, data[:20]
                told = await raw.reader.read()
                assert told.isascii()
                assert told.decode().strip().isprintable()
        await serves(port, service)


async def test_a_head_has_five_seconds(monkeypatch):
    """However it begins, and however long it is, it ends within."""
    monkeypatch.setattr(http, "HANDSHAKE_S", 0.5)
    line = b"X: " + b"x" * 1_000 + b"\r\n"
    heads = (b"", b"GET / HTTP/1.1\r\n", b"\x00", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n" + 9 * line)
    async with port_of("realtime") as port:
        for head in heads:
            async with Raw.to(port, head) as raw:
                with contextlib.suppress(ConnectionError):
                    assert await raw.reader.read() == b"", head[:20]
        long = request(PATHS["realtime"], {f"X-{i}": "x" * 4_000 for i in range(3)})
        async with Raw.to(port, long[:9_000]) as raw:
            await asyncio.sleep(0.1)
            raw.writer.write(long[9_000:])
            assert (await raw.head())[0] == 101
            await asyncio.sleep(1)
            raw.writer.write(frame(PING, b"there?"))
            assert await raw.until(PONG) == b"there?", "an upgraded one stays"


@pytest.mark.parametrize("num", [1, 3])
async def test_a_client_may_end_its_side_after_a_plain_request(num):
    """As `printf ... | nc` does. The first one of several requests is answered."""
    async with (
        port_of("realtime") as port,
        Raw.to(port, num * request("/healthz", Upgrade=None)) as raw,
    ):
        raw.writer.write_eof()
        assert (await raw.head())[0] == 200
        assert await raw.reader.read() == b"ok\n"


async def test_health_does_not_wait_for_upgrades_that_came_before():
    """A few of forty that come at one moment are answered before it."""
    upgrade, health = request(PATHS["realtime"]), request("/healthz", Upgrade=None)
    async with port_of("realtime") as port:
        sockets = [await asyncio.open_connection("127.0.0.1", port) for _ in range(41)]
        for (_, writer), data in zip(sockets, [upgrade] * 40 + [health], strict=True):
            writer.write(data)
        *upgrades, last = (asyncio.ensure_future(reader.readline()) for reader, _ in sockets)
        assert b" 200 " in await asyncio.wait_for(last, PATIENCE_S)
        assert sum(each.done() for each in upgrades) < 20
        await asyncio.wait_for(asyncio.gather(*upgrades), PATIENCE_S)
        assert all(each.result().strip() for each in upgrades)
        for _, writer in sockets:
            writer.close()


async def test_closed_connections_leave_the_queue_of_upgrades():
    """Three hundred that ask at once, where a hundred may wait: the oldest are closed."""
    async with running(opening()) as (url, server):
        server._max_waiting = 100
        at, num_queued = ("127.0.0.1", int(url.split(":")[2].partition("/")[0])), []
        sockets = []
        for _ in range(3):
            for _ in range(100):  # the loop accepts them together
                sockets.append(socket.create_connection(at))
                sockets[-1].sendall(request(PATHS["realtime"]))
            for _ in range(6):
                await asyncio.sleep(0)
                num_queued.append(len(server._queued))
        assert 50 < max(num_queued) <= 100
        for each in sockets:
            each.close()
        await wait_until(lambda: not server._queued and not server._waiting)


@pytest.mark.parametrize("path", ["/healthz", "/"])
async def test_an_offer_of_http_2_is_ignored(path):
    """Java's HttpClient, Ktor and curl --http2 make one; HEAD is a GET without a body."""
    offer = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAA"}
    async with port_of("realtime") as port:
        found = {}
        for method in ("GET", "HEAD"):
            async with Raw.to(port, request(path, offer, method)) as raw:
                status, headers = await raw.head()
                found[method] = (status, headers["content-length"], await raw.reader.read())
    status, length, body = found["GET"]
    assert (status, int(length)) == (200, len(body))
    assert found["HEAD"] == (200, length, b"")


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
                headers = {"Authorization": "Bearer SECRET", "Sec-WebSocket-Protocol": offer}
                headers["Sec-WebSocket-Extensions"] = extensions
                async with Raw.to(port, request(PATH, headers)) as raw:
                    status, found = await raw.head()
                    assert status == 101, offer
                    assert found.get("sec-websocket-protocol") == chosen, offer
                    assert "sec-websocket-extensions" not in found
                    assert "SECRET" not in str(found)
                    raw.writer.write(close(1000))
                    await raw.until(CLOSE)


def close(code=None, reason=b""):
    return frame(CLOSE, b"" if code is None else code.to_bytes(2, "big") + reason)


def announced(size):
    return bytes([0x82, 0xFF]) + size.to_bytes(8, "big")


HALF = bytes(3 << 20)


@pytest.mark.parametrize("data", [announced(2**31), frame(TEXT, HALF, fin=False) + frame(0, HALF)])
async def test_a_message_beyond_its_limit_ends_its_socket_alone(data):
    """2 GiB that are announced, and fragments beyond 5 MiB."""
    async with port_of("realtime") as port:
        async with Raw.to(port, request(PATH)) as raw:
            assert (await raw.head())[0] == 101
            raw.writer.write(data)
            assert int.from_bytes((await raw.until(CLOSE))[:2], "big") == 1009
        await serves(port, "realtime")
