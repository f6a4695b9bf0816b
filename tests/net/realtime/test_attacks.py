"""Clients that mean harm, against a scripted session: what one does costs neither the others, nor
the log, nor the memory."""

import asyncio
import base64
import contextlib
import json
import logging
import os
import resource
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections import Counter

import anyio
import pytest
from fake_session import opening
from processes import ENVIRONMENT
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from wire import COMMIT, http, running, serving, session_update, text_of, until

from streamer.net.service.service import MAX_WAITING

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


async def test_one_append_may_hold_3_mib():
    """The session's pushback takes as long as it needs, and nobody is cut."""
    data = base64.b64encode(bytes(3 << 20)).decode()
    async with running(opening(feed_s=0.5)) as (url, _), connect(url, compression=None) as ws:
        await ws.send(session_update())
        await ws.send(json.dumps({"type": "input_audio_buffer.append", "audio": data}))
        await ws.send(COMMIT)
        assert text_of(await until(ws, "response.done")) == str(3 << 20)


@pytest.mark.parametrize("is_binary", [False, True])
async def test_an_append_beyond_that_is_an_error_and_the_session_goes_on(is_binary):
    pcm = bytes((3 << 20) + 2)
    append = {"type": "input_audio_buffer.append", "audio": base64.b64encode(pcm).decode()}
    async with running(opening()) as (url, _), connect(url, compression=None) as ws:
        await ws.send(session_update(binary=True))
        await ws.send(pcm if is_binary else json.dumps(append))
        told = (await until(ws, "error"))[-1]["error"]
        assert (told["code"], told["message"]) == (
            "append_too_large",
            "append at most 3 MiB of audio at a time",
        )
        await ws.send(bytes(320))
        await ws.send(COMMIT)
        assert text_of(await until(ws, "response.done")) == "320"


async def test_stalled_large_messages_hold_up_nobody():
    """Eight clients begin 5 MiB and stop; a ninth sends 3 MiB and is answered."""
    head = bytes([0x82, 0xFF]) + (5 << 20).to_bytes(8, "big") + bytes(4)
    async with running(opening(), max_sessions=9, hold_s=0) as (url, _):
        stalled = [await connect(url, compression=None) for _ in range(8)]
        for link in stalled:
            link.transport.write(head + bytes(2 << 20))
        async with connect(url, compression=None) as ws:
            await ws.send(session_update(binary=True))
            await ws.send(bytes(3 << 20))
            await ws.send(COMMIT)
            assert text_of(await until(ws, "response.done")) == str(3 << 20)
        for link in stalled:
            link.transport.abort()


async def test_endless_empty_fragments_are_closed():
    """They are no bytes of a message: websockets before 17 kept them for ever."""
    begin, go_on = bytes([0x01, 0x80]) + bytes(4), bytes([0x00, 0x80]) + bytes(4)
    async with running(opening(), hold_s=0) as (url, _):
        ws = await connect(url, compression=None)
        await until(ws, "session.created")
        ws.transport.write(begin)
        for _ in range(1_000):
            ws.transport.write(go_on * 1_000)
            await anyio.sleep(0)
            if ws.transport.is_closing():
                break
        with anyio.fail_after(60), pytest.raises(ConnectionClosed):
            await ws.recv()
        async with connect(url) as healthy:
            await until(healthy, "session.created")


MANY_FILES = 4_096


def num_files(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def test_idle_connections_do_not_starve_the_port():
    """1,500 connections say nothing: health is answered as before, the oldest are closed, and
    after the deadline all are gone."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(MANY_FILES, hard), hard))
    with serving("--mode", "edge") as (url, process), contextlib.ExitStack() as stack:
        place = (url.split("//")[1].split(":")[0], int(url.split(":")[2].partition("/")[0]))

        def health_s():
            begun = time.monotonic()
            assert http(url, "/healthz")[0] == 200
            return time.monotonic() - begun

        before_s = statistics.median(health_s() for _ in range(9))
        files = num_files(process)
        took = []
        for _ in range(15):
            for _ in range(100):
                stack.enter_context(socket.create_connection(place, timeout=30))
            took.append(health_s())
        assert statistics.median(took) < 0.1 + 10 * before_s
        assert num_files(process) - files <= MAX_WAITING + 8
        with_deadline = time.monotonic() + 60
        while num_files(process) > files + 8:
            assert time.monotonic() < with_deadline
            time.sleep(0.1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_few_open_files_are_a_refusal_and_no_traceback():
    """Sessions beyond them get 503, and /healthz is still answered."""
    command = [
        sys.executable,
        *["-m", "streamer", "serve", "--port", "0", "--mode", "edge", "--max-sessions", "99"],
    ]
    limited = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", *command]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(limited, env=ENVIRONMENT, **pipes)
    try:
        url = process.stdout.readline().split()[2]

        async def fill():
            async with contextlib.AsyncExitStack() as stack:
                refused = None
                while refused is None:
                    try:
                        await stack.enter_async_context(connect(url))
                    except InvalidStatus as found:
                        refused = found.response
                assert refused.status_code == 503
                assert b"open no more files" in refused.body
                assert (await asyncio.to_thread(http, url, "/healthz"))[0] == 200

        asyncio.run(fill())
    finally:
        process.terminate()
        _, complaints = process.communicate()
    assert "Traceback" not in complaints
