"""The server as a process: which clients it admits, how it ends, and its use of memory and CPU."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
import websockets
from fake_session import opening
from patience import EXIT_S
from processes import ENVIRONMENT, run_here
from speech import speech
from tls import certificate
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidMessage
from wire import (
    ANSWER,
    COMMIT,
    describe,
    http,
    pcm,
    running,
    serving,
    session_update,
    text_of,
    until,
    until_left,
)

from streamer.net.service.service import DRAIN_S

VAD = {"type": "server_vad"}
UPDATE = session_update(binary=True)
SERVE = [sys.executable, *("-m", "streamer", "serve", "--mode", "edge", "--port")]


async def to_the_end(ws):
    """The events up to the close of the socket."""
    events = []
    with contextlib.suppress(websockets.ConnectionClosed):
        async for message in ws:
            events.append(json.loads(message))
    return events


async def test_admission_over_tls(tmp_path):
    """Keys, Origin, places and metrics of a server with a certificate; nothing is answered in the
    clear, and a turn is described."""
    chain, key, authority = certificate(tmp_path)
    context = ssl.create_default_context(cafile=authority)
    options = ("--cert", chain, "--key", key, "--api-key", "secret", "--max-sessions", 1)
    with serving(*options) as (url, _):
        assert url.startswith("wss://")

        def get(path, **headers):
            return http(url, path, headers, context)

        assert get("/healthz")[:2] == (200, "ok\n")
        assert get("/readyz")[:2] == (200, "ready\n")
        assert "streamer_sessions 0.0" in get("/metrics")[1]
        assert get("/v1/other")[0] == 404
        assert get("/v1/realtime")[0] == 401
        assert get("/v1/realtime", Authorization="Bearer secreT")[0] == 401
        good = {"Authorization": "Bearer secret"}
        assert get("/v1/realtime", **good, Origin="http://evil.example")[0] == 403
        protocols = ["realtime", "openai-insecure-api-key.secret"]
        async with connect(url, ssl=context, subprotocols=protocols) as ws:  # as a browser does
            assert ws.subprotocol == "realtime"
            status, text, headers = get("/v1/realtime", **good)
            assert (status, headers["Retry-After"]) == (503, "5")
            assert "taken" in text
            await ws.send(UPDATE)
            assert text_of(await describe(ws, pcm(speech(3, 1))))
        assert 'streamer_refusals_total{status="401"} 2.0' in get("/metrics")[1]
        with pytest.raises(ssl.SSLError):  # a client that does not know the authority
            await connect(url, ssl=ssl.create_default_context())
        with pytest.raises(InvalidMessage):
            await connect(url.replace("wss", "ws"))


def test_twenty_turns_in_flight_are_answered_before_the_server_ends():
    """SIGTERM: each client gets its sentence and close 1012; exit 0."""
    with serving("--max-sessions", 20) as (url, process):

        async def one(ready):
            async with connect(url) as ws:
                await ws.send(session_update(vad=VAD, binary=True))
                await until(ws, "session.updated")
                await ws.send(pcm(speech(4, 1)))
                await until(ws, "input_audio_buffer.speech_started")
                if await ready.wait() == 0:
                    process.send_signal(signal.SIGTERM)
                text = text_of(await until(ws, "response.done"))
                await to_the_end(ws)
                return text, ws.close_code

        async def main():
            ready = asyncio.Barrier(20)
            return await asyncio.gather(*(one(ready) for _ in range(20)))

        ((text, code),) = set(asyncio.run(main()))
        assert text
        assert code == 1012
        assert process.wait(EXIT_S) == 0


def test_turns_that_the_client_ends_are_answered_before_the_server_ends():
    """SIGTERM in the middle of the audio, before and after the commit, and after the request: each
    client gets the whole sentence."""
    with serving("--mode", "exact") as (url, process):
        data = pcm(speech(3, 2))

        async def one(before, ready):
            async with connect(url) as ws:
                await ws.send(session_update(binary=True, acks=True))
                messages = [data[:30_000], data[30_000:], COMMIT, ANSWER]
                for message in messages[:before]:
                    await ws.send(message)
                events = await until(ws, "streamer.ack")
                while events[-1]["messages"] <= before:
                    events += await until(ws, "streamer.ack")
                if await ready.wait() == 0:
                    process.send_signal(signal.SIGTERM)
                while http(url, "/readyz")[0] == 200:
                    await asyncio.sleep(0.02)
                for message in messages[before:]:
                    await ws.send(message)
                events += await to_the_end(ws)
                return text_of(events), ws.close_code

        async def main():
            ready = asyncio.Barrier(4)
            return await asyncio.gather(*(one(before, ready) for before in (1, 2, 3, 4)))

        ((text, code),) = set(asyncio.run(main()))
        assert text
        assert code == 1012
        assert process.wait(EXIT_S) == 0


@pytest.mark.parametrize("messages", [[ANSWER], [COMMIT]], ids=["uncommitted", "unasked"])
def test_ctrl_c_says_what_it_waits_for_and_ends(messages):
    """A client that is silent now has nothing to wait for."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([*SERVE, "0"], env=ENVIRONMENT, **pipes)
    url = process.stdout.readline().split()[2]
    end = "response.done" if messages == [ANSWER] else "input_audio_buffer.committed"

    async def main():
        async with connect(url) as ws:
            for message in (UPDATE, pcm(speech(2, 1)), *messages):
                await ws.send(message)
            await until(ws, end)
            process.send_signal(signal.SIGINT)
            await to_the_end(ws)

    begun = time.monotonic()
    asyncio.run(main())
    _, complaints = process.communicate(timeout=EXIT_S)
    assert time.monotonic() - begun < DRAIN_S
    assert "a second Ctrl-C or SIGTERM ends at once" in complaints


async def test_the_second_stop_ends_at_once():
    """Even if a session takes for ever to come to its end."""
    async with running(opening(feed_s=1e6)) as (url, server), connect(url) as ws:
        await ws.send(UPDATE)
        await ws.send(bytes(320))
        await until(ws, "session.updated")
        with anyio.fail_after(DRAIN_S / 2):
            server.stop()
            await anyio.sleep(0)
            server.stop()
            await to_the_end(ws)


def complaints_of(stderr):
    """Its lines, without those that say what is being loaded."""
    return [line for line in stderr.splitlines() if not line.startswith("loading ")]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--host", "0.0.0.0"], "set --api-key"),
        (["--cert", "x.pem"], "needs both"),
        (["--cert", "x.pem", "--key", "y.pem"], "cannot be used"),
        (["--max-sessions", "0"], "1 to 1024"),
        (["--port", "99999"], "0 to 65535"),
        (["--mode", "exact", "--cloud", "none"], "needs a cloud"),
        (["--pipeline", "nowhere.toml"], "cannot be read"),
        (["--edge", "./nowhere"], "no such model directory"),
    ],
)
def test_options_that_cannot_be_served_are_one_line(options, told):
    port = () if "--port" in options else ("--port", 0)
    status, _, err = run_here("serve", *port, *options)
    assert status in (1, 2)
    (line,) = complaints_of(err)
    assert told in line


def test_a_taken_port_is_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [*SERVE, str(taken.getsockname()[1])]
        done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
    (line,) = complaints_of(done.stderr)
    assert done.returncode == 1
    assert "choose another --port" in line


def memory_mb(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def cpu_s(process):
    row = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(row[11]) + int(row[12])) / os.sysconf("SC_CLK_TCK")


async def say(url, seed):
    async with connect(url) as ws:
        await ws.send(UPDATE)
        return text_of(await describe(ws, pcm(speech(3, seed)), seed))


@pytest.mark.parametrize("seconds", [120, pytest.param(3_600, marks=pytest.mark.long)])
async def test_silence_costs_little_and_causes_no_event(seconds):
    """As fast as the server takes it: no turn, flat memory, a few percent of the audio's time."""
    with serving() as (url, process):
        await say(url, 1)
        async with connect(url) as ws:
            await ws.send(session_update(vad=VAD, binary=True, events=True, live_update_s=1.0))
            await until(ws, "session.updated")
            for _ in range(50):  # buffers that grow once have grown
                await ws.send(bytes(32_000))
            await (await ws.ping())
            memory, cpu = memory_mb(process), cpu_s(process)
            for _ in range(seconds):
                await ws.send(bytes(32_000))
            await (await ws.ping())
            assert memory_mb(process) - memory < 20
            assert cpu_s(process) - cpu < 0.1 * seconds
            assert 'streamer_turns_total{stop_reason="no_speech"} 0.0' in http(url, "/metrics")[1]
            await ws.send(pcm(speech(3, 2)) + bytes(48_000))
            events = await until(ws, "response.done")
            assert events[0]["type"] == "input_audio_buffer.speech_started", "none before"
            assert text_of(events)


@pytest.mark.parametrize("times", [6, pytest.param(50, marks=pytest.mark.long)])
async def test_clients_that_vanish_leave_nothing_behind(times):
    """Cut off at any moment, without a goodbye: no sessions, no queues, no memory, and every slot
    is free again."""
    with serving("--mode", "exact", "--resume-s", 0, "--max-sessions", 8) as (url, process):

        async def vanish(i):
            ws = await connect(url)
            await ws.send(session_update(vad=VAD, binary=True, live_update_s=0.5))
            await ws.send(pcm(speech(0.5 + i % 6, i % 16)))
            await asyncio.sleep(0.03 * (i % 10))
            ws.transport.abort()

        await asyncio.gather(*(vanish(i) for i in range(8)))
        await until_left(url)
        memory = memory_mb(process)
        for i in range(times):
            await vanish(i)
        await until_left(url)
        depths = re.findall(r"^streamer_queue_depth{[^}]*} (\S+)", http(url, "/metrics")[1], re.M)
        assert set(depths) == {"0.0"}
        assert memory_mb(process) - memory < 30
        assert all(await asyncio.gather(*(say(url, i) for i in range(8))))
