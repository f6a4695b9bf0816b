"""Admission: keys and their shares, Origins, tickets; the service by raw sockets."""

import asyncio
import base64
import contextlib
import ssl
from types import SimpleNamespace

import pytest
from websockets.datastructures import Headers
from websockets.frames import Frame
from websockets.utils import accept_key
from wire import certificate, in_process, opening, running

from streamer.commands.serve import key_of, origins_of
from streamer.config import ConfigError
from streamer.extras.fleet.tickets import LIFE_S, sign
from streamer.net.realtime.server import PATH, RealtimeServer
from streamer.net.service import service
from streamer.net.service.admission import Admission, HttpRefusal, busy


def bearer(key, **more):
    return Headers({"Authorization": f"Bearer {key}"} | more)


def refused(call, *arguments):
    """The refusal that it raises."""
    with pytest.raises(HttpRefusal) as found:
        call(*arguments)
    return found.value


@pytest.fixture
def door():
    return Admission((PATH,), 10, "alice,bob", max_per_key=4, name="server-1")


NOW = 1_000_000.0


def admitted(door, ticket):
    """The tenant that a ticket lets in, or None."""
    with contextlib.suppress(HttpRefusal):
        return door.check(PATH, Headers(), {"ticket": [ticket]})


def test_each_key_is_a_tenant(door):
    assert door.check(PATH, bearer("alice")) == "alice"
    browser = Headers({"Sec-WebSocket-Protocol": "realtime, openai-insecure-api-key.bob"})
    assert door.check(PATH, browser) == "bob"
    assert door.check(PATH, Headers({"Authorization": "bearer alice"})) == "alice"
    for key in ("eve", "alice,bob", "", "ali", "\xff"):
        assert refused(door.check, PATH, bearer(key)).status == 401
    for wrong in ({}, {"Authorization": "Basic alice"}):
        assert refused(door.check, PATH, Headers(wrong)).status == 401
    assert Admission((PATH,), 1).check(PATH, Headers()) == ""


def test_a_tenant_has_its_share(door):
    alice, bob = SimpleNamespace(tenant="alice"), SimpleNamespace(tenant="bob")
    door.places |= dict.fromkeys("abc", alice)
    assert door.why_full("alice") is None
    door.places["d"] = alice
    assert door.why_full("alice") == "all 4 sessions of this key are taken"
    assert door.why_full("bob") is None
    del door.places["d"]
    assert door.why_full("alice") is None
    door.max_per_key = None
    door.places |= dict.fromkeys(range(7), bob)
    assert door.why_full("bob") == "all 10 sessions are taken"
    assert busy("all are taken").headers["Retry-After"] == "5"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("https://example.org/", "https://example.org"),
        ("HTTPS://Example.ORG:443", "https://example.org"),
        ("http://example.org:443", "http://example.org:443"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("http://my_app:3000", "http://my_app:3000"),
    ],
)
def test_an_origin_is_written_as_browsers_send_it(given, wanted):
    door = Admission((PATH,), 1, "key", origins_of([given]))
    assert door.check(PATH, bearer("key", Host="elsewhere", Origin=wanted)) == "key"
    elsewhere = bearer("key", Host="elsewhere", Origin="https://c.org")
    assert refused(door.check, PATH, elsewhere).status == 403


WRONG = ("*", "null", "", "example.org", "//a.org", "https://", "https://a.org/page")
WRONG += ("https://u@a.org", "ftp://a.org", "https://\u00fc.org", "https://a.org:65536")


@pytest.mark.parametrize("given", [*WRONG, "a,", "a,,b", "a b"])
def test_an_origin_or_a_list_of_keys_that_is_none_is_refused_at_the_start(given):
    read, told = (origins_of, "is no Origin") if given in WRONG else (key_of, "one or more letters")
    with pytest.raises(ConfigError, match=told):
        read([given] if given in WRONG else given)


@pytest.mark.parametrize(
    ("key", "replica", "after_s", "wanted"),
    [
        *(("alice", "", 0, "alice"), ("bob", "", 0, "bob"), ("eve", "", 0, None)),
        *(("alice", "server-2.ab", 0, None), ("alice", "server-1.cd", 0, None)),
        # the latter would be good, and kept, for ever
        *(("alice", "", LIFE_S + 1, None), ("alice", "", -3_600, None)),
    ],
)
def test_a_ticket_is_of_one_key_one_replica_and_one_time(door, key, replica, after_s, wanted):
    door.tickets.clock = lambda: NOW
    assert admitted(door, sign(key, replica or door.replica, NOW - after_s)) == wanted


def test_used_tickets_are_forgotten_when_they_expire(door):
    used = sign("alice", door.replica, NOW)
    door.tickets.clock = lambda: NOW
    assert admitted(door, used) == "alice"
    for i in range(1, 100):
        door.tickets.clock = lambda i=i: NOW + i
        assert admitted(door, used) is None
        assert admitted(door, sign("bob", door.replica, NOW + i)) == "bob"
    assert len(door.tickets.used) <= LIFE_S + 2


KEY = base64.b64encode(bytes(range(16))).decode()
UPGRADE = {"Host": "127.0.0.1", "Connection": "Upgrade", "Upgrade": "websocket"}
UPGRADE |= {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": KEY}
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10


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


def frame(opcode, data=b"", fin=True):
    """A client's, masked."""
    return Frame(opcode, data, fin).serialize(mask=True)


@contextlib.asynccontextmanager
async def raw(port, data):
    """(reader, writer) of a socket without a websocket library that has sent this."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        async with asyncio.timeout(20.0):
            yield reader, writer
    finally:
        writer.transport.abort()


async def head_of(reader):
    """(status, headers in lower case) of an answer."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    pairs = (line.split(": ", 1) for line in lines)
    return int(first.split()[1]), {name.lower(): value for name, value in pairs}


async def until(reader, opcode):
    """The payload of the next frame of this opcode."""
    while True:
        first, size = await reader.readexactly(2)
        assert size <= 126, "a server masks nothing, and says little here"
        if size == 126:
            size = int.from_bytes(await reader.readexactly(2), "big")
        data = await reader.readexactly(size)
        if first & 0x0F == opcode:
            return data


NO_UPGRADES = {  # name -> (what is changed, the status of the answer)
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
    async with raw(port, request(PATH)) as (reader, writer):
        status, headers = await head_of(reader)
        assert (status, headers["sec-websocket-accept"]) == (101, accept_key(KEY))
        writer.write(frame(PING, b"there?"))
        assert await until(reader, PONG) == b"there?"


async def test_a_request_that_is_no_upgrade_is_refused_before_it():
    """By HTTP in one printable line; none holds a place."""
    async with realtime() as port:
        for name, (changed, wanted) in NO_UPGRADES.items():
            async with raw(port, request(**{"path": PATH, **changed})) as (reader, _):
                status, headers = await head_of(reader)
                assert status == wanted, f"{name}: {status} {headers}"
                told = (await reader.read()).decode()
                assert all(line.isprintable() for line in told.splitlines()), name
        await serves(port)


async def test_a_head_has_five_seconds(monkeypatch):
    assert service.HANDSHAKE_S == 5
    monkeypatch.setattr(service, "HANDSHAKE_S", 0.5)
    line = b"X: " + b"x" * 1_000 + b"\r\n"
    async with realtime() as port:
        for head in (b"", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\n" + 9 * line):
            async with raw(port, head) as (reader, writer):
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b"", head[:20]
        async with raw(port, request(PATH)) as (reader, writer):
            assert (await head_of(reader))[0] == 101
            await asyncio.sleep(1)
            writer.write(frame(PING, b"there?"))
            assert await until(reader, PONG) == b"there?", "an upgraded one stays"


async def test_so_has_the_handshake_of_tls(monkeypatch, tmp_path):
    monkeypatch.setattr(service, "HANDSHAKE_S", 0.5)
    chain, key, _ = certificate(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(chain, key)
    server = RealtimeServer(opening(), Admission((PATH,), 4))
    async with in_process(server, tls=tls) as port, raw(port, b"\x16\x03\x01") as (reader, _):
        assert await asyncio.wait_for(reader.read(), 20) == b""


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
                async with raw(port, request(PATH, headers)) as (reader, writer):
                    status, found = await head_of(reader)
                    assert status == 101, offer
                    assert found.get("sec-websocket-protocol") == chosen, offer
                    assert "sec-websocket-extensions" not in found
                    assert "SECRET" not in str(found)
                    writer.write(frame(CLOSE, (1000).to_bytes(2, "big")))
                    await until(reader, CLOSE)


ANNOUNCED = bytes([0x82, 0xFF]) + (2**31).to_bytes(8, "big")
HALF = bytes(3 << 20)


@pytest.mark.parametrize("data", [ANNOUNCED, frame(TEXT, HALF, fin=False) + frame(0, HALF)])
async def test_a_message_beyond_its_limit_ends_its_socket_alone(data):
    async with realtime() as port:
        async with raw(port, request(PATH)) as (reader, writer):
            assert (await head_of(reader))[0] == 101
            writer.write(data)
            assert int.from_bytes((await until(reader, CLOSE))[:2], "big") == 1009
        await serves(port)
