"""The server as a process: who may come in, how it ends, what it cannot serve."""

from __future__ import annotations

import asyncio
import contextlib
import http.client as http_client
import signal
import socket
import subprocess
import sys
import time

import anyio
import pytest
import websockets
from fake_session import opening
from patience import EXIT_S
from processes import ENVIRONMENT, run_here
from speech import speech
from websockets.asyncio.client import connect
from wire import (
    ANSWER,
    COMMIT,
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


def test_http_and_admission():
    with serving("--api-key", "secret", "--max-sessions", 1) as (url, _):
        assert http(url, "/healthz")[:2] == (200, "ok\n")
        assert http(url, "/readyz")[0] == 200
        assert "streamer_sessions 0.0" in http(url, "/metrics")[1]
        assert http(url, "/v1/other")[0] == 404
        assert http(url, "/v1/realtime")[0] == 401
        assert http(url, "/v1/realtime", {"Authorization": "Bearer secreT"})[0] == 401
        good = {"Authorization": "Bearer secret"}
        assert http(url, "/v1/realtime", good | {"Origin": "http://evil.example"})[0] == 403

        async def main():
            protocols = ["realtime", "openai-insecure-api-key.secret"]
            async with connect(url, subprotocols=protocols) as ws:  # as a browser does
                assert ws.subprotocol == "realtime"
                status, text, headers = http(url, "/v1/realtime", good)
                assert (status, headers["Retry-After"]) == (503, "5")
                assert "taken" in text
            await until_left(url)
            async with connect(url, additional_headers=good) as ws:
                assert ws.subprotocol is None

        asyncio.run(main())
        assert 'streamer_refusals_total{status="401"} 2.0' in http(url, "/metrics")[1]


def test_a_turn_in_flight_is_answered_before_the_server_goes():
    """SIGTERM: not ready, nobody new, the turn gets its sentence, close 1012, exit 0."""
    with serving() as (url, process):

        async def main():
            async with connect(url) as ws:
                await ws.send(session_update(vad={"type": "server_vad"}, binary=True))
                await until(ws, "session.updated")
                await ws.send(pcm(speech(4, 1)))
                await until(ws, "input_audio_buffer.speech_started")
                process.send_signal(signal.SIGTERM)
                events = await until(ws, "response.done")
                with contextlib.suppress(websockets.ConnectionClosed):
                    async for _ in ws:
                        pass
                assert ws.close_code == 1012
                return text_of(events)

        assert asyncio.run(main())
        assert process.wait(EXIT_S) == 0


UPDATE = session_update(binary=True)


@pytest.mark.parametrize("after", ["audio that is not committed", "a turn without a question"])
def test_ctrl_c_says_what_it_waits_for_and_ends(after):
    """Push-to-talk: nothing more comes, so there is nothing to wait for."""
    command = [sys.executable, *["-m", "streamer", "serve", "--port", "0", "--mode", "edge"]]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=ENVIRONMENT, **pipes)
    url = process.stdout.readline().split()[2]

    async def main():
        async with connect(url) as ws:
            await ws.send(UPDATE)
            await ws.send(pcm(speech(2, 1)))
            if after == "a turn without a question":
                await ws.send(COMMIT)
                await until(ws, "input_audio_buffer.committed")
            else:
                await ws.send(ANSWER)
                await until(ws, "response.done")  # failed: nothing was committed
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(websockets.ConnectionClosed):
                async for _ in ws:
                    pass

    begun = time.monotonic()
    asyncio.run(main())
    _, complaints = process.communicate(timeout=EXIT_S)
    assert time.monotonic() - begun < DRAIN_S
    assert "a second Ctrl-C or SIGTERM ends at once" in complaints


async def test_the_second_stop_ends_at_once():
    """Even where a session takes for ever to come to its end."""
    async with running(opening(feed_s=1e6)) as (url, server), connect(url) as ws:
        await ws.send(UPDATE)
        await ws.send(bytes(320))
        await until(ws, "session.updated")
        with anyio.fail_after(DRAIN_S / 2):
            server.stop()
            await anyio.sleep(0)
            server.stop()
            with contextlib.suppress(websockets.ConnectionClosed):
                async for _ in ws:
                    pass


@pytest.mark.parametrize("path", ["/healthz", "/"])
def test_an_offer_of_http_2_is_passed_over(server, path):
    """Java's HttpClient, Ktor and curl --http2 make one with every request; HEAD is a GET without a
    body."""
    offer = {
        "Connection": "Upgrade, HTTP2-Settings",
        "Upgrade": "h2c",
        "HTTP2-Settings": "AAMAAABk",
    }
    place = server.removeprefix("ws://").partition("/")[0]
    bodies = {}
    for method in ("GET", "HEAD"):
        link = http_client.HTTPConnection(place, timeout=60)
        link.request(method, path, headers=offer)
        answer = link.getresponse()
        bodies[method] = (answer.status, answer.headers["Content-Length"], answer.read())
        link.close()
    status, length, body = bodies["GET"]
    assert (status, int(length)) == (200, len(body))
    assert bodies["HEAD"] == (200, length, b"")


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
def test_what_cannot_be_served_is_told_in_one_line(options, told):
    port = () if "--port" in options else ("--port", 0)
    status, _, err = run_here("serve", *port, *options)
    assert status in (1, 2)
    (line,) = complaints(err)
    assert told in line


def complaints(stderr):
    """Its lines, but for the one that says what is being loaded."""
    return [line for line in stderr.splitlines() if not line.startswith("loading ")]


def test_a_port_that_is_taken_is_told():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, "-m", "streamer", "serve", "--port", str(taken.getsockname()[1])]
        done = subprocess.run(
            command, capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=False
        )
    (line,) = complaints(done.stderr)
    assert done.returncode == 1
    assert "choose another --port" in line
