"""The service by raw sockets, where we add to websockets; each case leaves it serving."""

import asyncio
import contextlib
import ssl

import pytest
from fake_session import opening
from raw import ACCEPT, CLOSE, PING, PONG, TEXT, Raw, frame, realtime, request
from tls import certificate
from wire import in_process

from streamer.net.realtime.server import PATH, RealtimeServer
from streamer.net.service import service
from streamer.net.service.admission import Admission

WRONG = {  # name -> (what is changed, the status of the answer)
    "another path": ({"path": "/nowhere"}, 404),
    "a path that is no address": ({"path": "//["}, 400),
    "no key": ({"Sec-WebSocket-Key": None}, 400),
    "no Upgrade": ({"Upgrade": None}, 426),
    "a POST": ({"path": "/healthz", "method": "POST", "Upgrade": None}, 405),
    "a POST with a body": ({"method": "POST", "Content-Length": "3"}, 405),
    "a POST in chunks": ({"method": "POST", "Transfer-Encoding": "chunked"}, 405),
    "an escape in the path": ({"path": "/\x1b[31m"}, 400),
    "a foreign Origin": ({"Origin": "http://evil.example"}, 403),
    "two Origins": ({"Origin": "http://a\r\nOrigin: http://b"}, 400),
    "HTTP/2": ({"version": "HTTP/2.0"}, 400),
    "a path of 20,000 bytes": ({"path": "/" + "x" * 20_000}, 414),
}


async def serves(port):
    """A healthy client is served."""
    async with Raw.to(port, request(PATH)) as raw:
        status, headers = await raw.head()
        assert (status, headers["sec-websocket-accept"]) == (101, ACCEPT)
        raw.writer.write(frame(PING, b"there?"))
        assert await raw.until(PONG) == b"there?"


async def test_a_request_that_is_no_upgrade_is_refused_before_it():
    """By HTTP in one printable line; none holds a place."""
    async with realtime() as port:
        for name, (changed, wanted) in WRONG.items():
            async with Raw.to(port, request(**{"path": PATH, **changed})) as raw:
                status, headers = await raw.head()
                assert status == wanted, f"{name}: {status} {headers}"
                told = (await raw.reader.read()).decode()
                assert all(line.isprintable() for line in told.splitlines()), name
        await serves(port)


async def test_a_head_has_five_seconds(monkeypatch):
    assert service.HANDSHAKE_S == 5
    monkeypatch.setattr(service, "HANDSHAKE_S", 0.5)
    line = b"X: " + b"x" * 1_000 + b"\r\n"
    async with realtime() as port:
        for head in (b"", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\n" + 9 * line):
            async with Raw.to(port, head) as raw:
                with contextlib.suppress(ConnectionError):
                    assert await raw.reader.read() == b"", head[:20]
        async with Raw.to(port, request(PATH)) as raw:
            assert (await raw.head())[0] == 101
            await asyncio.sleep(1)
            raw.writer.write(frame(PING, b"there?"))
            assert await raw.until(PONG) == b"there?", "an upgraded one stays"


async def test_so_has_the_handshake_of_tls(monkeypatch, tmp_path):
    monkeypatch.setattr(service, "HANDSHAKE_S", 0.5)
    chain, key, _ = certificate(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(chain, key)
    server = RealtimeServer(opening(), Admission((PATH,), 4))
    async with in_process(server, tls=tls) as port, Raw.to(port, b"\x16\x03\x01") as raw:
        assert await asyncio.wait_for(raw.reader.read(), 20) == b""


OFFERS = {  # what is offered -> what is chosen
    None: None,
    "realtime": "realtime",
    "openai-insecure-api-key.SECRET, realtime": "realtime",
    "realtime, openai-insecure-api-key.SECRET, openai-beta.realtime-v1": "realtime",
    "chat": None,
}


async def test_subprotocols_and_compression():
    """A key that comes as a subprotocol is never said back; compression is never agreed to."""
    async with realtime(api_key="SECRET", max_sessions=32) as port:
        for offer, chosen in OFFERS.items():
            for extensions in (None, "permessage-deflate; client_max_window_bits"):
                headers = {"Authorization": "Bearer SECRET", "Sec-WebSocket-Protocol": offer}
                headers["Sec-WebSocket-Extensions"] = extensions
                async with Raw.to(port, request(PATH, headers)) as raw:
                    status, found = await raw.head()
                    assert status == 101, offer
                    assert found.get("sec-websocket-protocol") == chosen, offer
                    assert "sec-websocket-extensions" not in found
                    assert "SECRET" not in str(found)
                    raw.writer.write(frame(CLOSE, (1000).to_bytes(2, "big")))
                    await raw.until(CLOSE)


ANNOUNCED = bytes([0x82, 0xFF]) + (2**31).to_bytes(8, "big")
HALF = bytes(3 << 20)


@pytest.mark.parametrize("data", [ANNOUNCED, frame(TEXT, HALF, fin=False) + frame(0, HALF)])
async def test_a_message_beyond_its_limit_ends_its_socket_alone(data):
    async with realtime() as port:
        async with Raw.to(port, request(PATH)) as raw:
            assert (await raw.head())[0] == 101
            raw.writer.write(data)
            assert int.from_bytes((await raw.until(CLOSE))[:2], "big") == 1009
        await serves(port)
