"""Clients that mean harm, against a scripted session: what one does costs neither the others, nor
the log, nor the memory."""

import asyncio
import base64
import contextlib
import json
import logging
import socket
import struct
from collections import Counter

import anyio
import pytest
from fake_session import opening
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from wire import COMMIT, running, session_update, text_of, until

from streamer.net.service import big_messages
from streamer.net.service.big_messages import BIG_BYTES, NUM_BIG

RESET = struct.pack("ii", 1, 0)  # of SO_LINGER: gone without a goodbye


def client_frame(opcode, payload):
    return bytes([0x80 | opcode, 0x80 | len(payload)]) + bytes(4) + payload


FLOODS = {"pings": client_frame(9, b"ping") * 20_000, "events": client_frame(1, b"{}") * 5_000}


@pytest.mark.parametrize("kind", FLOODS)
async def test_clients_that_vanish_do_not_fill_the_log(kind, caplog):
    """They ask for thousands of answers, and are gone before the first one: asyncio's complaint of
    each write is not worth a line each."""
    sessions = []
    caplog.set_level(logging.WARNING)
    async with running(opening(sessions, num_said=1_000), max_sessions=8, hold_s=0) as (
        url,
        server,
    ):
        for _ in range(3):
            ws = await connect(url, compression=None, max_queue=None)
            raw = ws.transport.get_extra_info("socket")
            ws.transport.pause_reading()
            ws.transport.write(FLOODS[kind])
            while ws.transport.get_write_buffer_size():
                await asyncio.sleep(0)
                if raw.fileno() < 0:
                    break
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            ws.transport.abort()
        with anyio.fail_after(60):
            while server._admission.num_sessions or sessions:
                await anyio.sleep(0.01)
    assert len(caplog.records) <= 1, Counter(caplog.messages).most_common(3)


async def test_fifty_resumes_at_once_have_one_winner():
    """The newest link has the session; each of the others is told that it goes on elsewhere."""
    async with (
        running(opening(feed_s=0.01), max_sessions=1) as (url, _),
        anyio.create_task_group() as group,
    ):
        first = await connect(url)
        session_id = json.loads(await first.recv())["session"]["id"]
        await first.send(session_update(binary=True))

        async def speak():
            """Faster than it is heard, as an attacker would."""
            with contextlib.suppress(ConnectionClosed):
                while True:
                    await first.send(bytes(640))

        group.start_soon(speak)
        links = await asyncio.gather(
            *(connect(f"{url}?resume={session_id}", open_timeout=60) for _ in range(50))
        )
        closed = Counter()

        async def listen(link, scope):
            try:
                with scope:
                    while True:
                        await link.recv()
            except ConnectionClosed as error:
                closed[error.rcvd.code] += 1

        listening = {}
        for link in (first, *links):
            listening[link] = anyio.CancelScope()
            group.start_soon(listen, link, listening[link])
        with anyio.fail_after(60):
            while closed.total() < 50:
                await anyio.sleep(0.01)
        assert closed == {4409: 50}
        (winner,) = (link for link in links if link.close_code is None)
        listening[winner].cancel()
        await anyio.wait_all_tasks_blocked()
        await winner.send('{"type": "input_audio_buffer.clear"}')
        await winner.send(bytes(320))
        await winner.send(COMMIT)
        assert text_of(await until(winner, "response.done")) == "320"
        await winner.close()


@pytest.mark.parametrize("mib", [2, 15])
async def test_one_append_may_hold_15_mib(mib):
    """As the protocol allows. The session's pushback takes as long as it needs, and nobody is
    cut."""
    data = base64.b64encode(bytes(mib << 20)).decode()
    async with running(opening(feed_s=0.5)) as (url, _), connect(url, compression=None) as ws:
        await ws.send(session_update())
        await ws.send(json.dumps({"type": "input_audio_buffer.append", "audio": data}))
        await ws.send(COMMIT)
        assert text_of(await until(ws, "response.done")) == str(mib << 20)


@pytest.mark.parametrize("is_binary", [False, True])
async def test_an_append_beyond_that_is_an_error_and_the_session_goes_on(is_binary):
    pcm = bytes((15 << 20) + 2)
    append = {"type": "input_audio_buffer.append", "audio": base64.b64encode(pcm).decode()}
    async with running(opening()) as (url, _), connect(url, compression=None) as ws:
        await ws.send(session_update(binary=True))
        await ws.send(pcm if is_binary else json.dumps(append))
        told = (await until(ws, "error"))[-1]["error"]
        assert (told["code"], told["message"]) == (
            "append_too_large",
            "append at most 15 MiB of audio at a time",
        )
        await ws.send(bytes(320))
        await ws.send(COMMIT)
        assert text_of(await until(ws, "response.done")) == "320"


async def test_big_messages_of_many_clients_wait_for_each_other():
    """Twelve send 8 MiB at once. No more than NUM_BIG are in the server's hands; all are taken, and
    a polite client is answered meanwhile."""
    most, is_done = 0, anyio.Event()
    num_clients, size = 12, 8 << 20
    found = []

    async with running(opening(feed_s=0.05), max_sessions=16) as (url, server):

        async def send_big():
            async with connect(url, compression=None) as ws:
                await ws.send(session_update(binary=True))
                await ws.send(bytes(size))
                await ws.send(COMMIT)
                found.append(text_of(await until(ws, "response.done")))
            if len(found) == num_clients:
                is_done.set()

        async def watch():
            nonlocal most
            while not is_done.is_set():
                held = [
                    len(place.connection._socket.protocol.reader.buffer)
                    for place in server._hub._places.values()
                    if place.connection is not None
                ]
                most = max(most, sum(held))
                await anyio.sleep(0)

        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            for _ in range(num_clients):
                group.start_soon(send_big)
            async with connect(url, compression=None) as polite:
                await polite.send(session_update(binary=True))
                await polite.send(bytes(320))
                await polite.send(COMMIT)
                assert text_of(await until(polite, "response.done")) == "320"
    assert found == [str(size)] * num_clients
    assert BIG_BYTES < most < NUM_BIG * size + num_clients * (BIG_BYTES + (512 << 10))


async def test_a_big_message_that_never_ends_gives_its_room_to_others(monkeypatch):
    monkeypatch.setattr(big_messages, "PATIENCE_S", 0.2)
    head = bytes([0x82, 0xFF]) + (8 << 20).to_bytes(8, "big") + bytes(4)
    async with running(opening(), max_sessions=8, hold_s=0) as (url, _):
        idle = [await connect(url, compression=None) for _ in range(NUM_BIG)]
        for link in idle:
            link.transport.write(head + bytes(2 << 20))
        async with connect(url, compression=None) as ws:
            await ws.send(session_update(binary=True))
            await ws.send(bytes(2 << 20))
            await ws.send(COMMIT)
            assert text_of(await until(ws, "response.done")) == str(2 << 20)
        for link in idle:
            link.transport.abort()
