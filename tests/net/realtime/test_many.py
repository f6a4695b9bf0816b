"""A real server under many clients at once, long silence, stopped processes and SIGTERM: nobody
notices the others."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import websockets
from patience import EXIT_S
from speech import speech
from websockets.asyncio.client import connect
from wire import (
    ANSWER,
    COMMIT,
    describe,
    http,
    pcm,
    serving,
    session_update,
    text_of,
    until,
    until_left,
)

VAD = {"type": "server_vad"}
LISTENER = """
import asyncio, json, sys
from websockets.asyncio.client import connect
async def main():
    async with connect(sys.argv[1]) as ws:
        await ws.recv()
        print("open", flush=True)
        async for _ in ws: pass
asyncio.run(main())
"""


def memory_mb(process):
    return (
        int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[0])
        / 1024
    )


def cpu_s(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def say(url, i):
    async with connect(url) as ws:
        await ws.send(session_update(binary=True))
        return text_of(await describe(ws, pcm(speech(2 + i % 3, i)), i))


async def test_sixteen_clients_with_different_audio_get_their_own_words(server):
    alone = [await say(server, i) for i in range(16)]
    assert len(set(alone)) >= 8, "different voices are described differently"
    together = await asyncio.gather(*(say(server, i) for i in range(16)))
    assert together == alone


def test_twenty_turns_in_flight_are_answered_before_the_server_goes():
    """SIGTERM: everyone's sentence, close 1012, exit 0."""
    with serving("--max-sessions", 20) as (url, process):

        async def one(ready, gone):
            async with connect(url) as ws:
                await ws.send(session_update(vad=VAD, binary=True))
                await until(ws, "session.updated")
                await ws.send(pcm(speech(4, 1)))
                await until(ws, "input_audio_buffer.speech_started")
                await ready.wait()
                if gone.is_set() is False:
                    gone.set()
                    process.send_signal(signal.SIGTERM)
                text = text_of(await until(ws, "response.done"))
                with contextlib.suppress(websockets.ConnectionClosed):
                    async for _ in ws:
                        pass
                return text, ws.close_code

        async def main():
            ready, gone = asyncio.Barrier(20), asyncio.Event()
            return await asyncio.gather(*(one(ready, gone) for _ in range(20)))

        found = asyncio.run(main())
        assert {code for _, code in found} == {1012}
        assert len({text for text, _ in found}) == 1
        assert found[0][0]
        assert process.wait(EXIT_S) == 0


def test_turns_that_the_client_ends_are_answered_before_the_server_goes():
    """SIGTERM while somebody speaks, after the commit, and after the question: everyone gets the
    whole sentence."""
    with serving("--mode", "exact") as (url, process):
        data = pcm(speech(3, 2))

        async def one(before, ready, gone):
            async with connect(url) as ws:
                await ws.send(session_update(binary=True, acks=True))
                messages = [data[:30_000], data[30_000:], COMMIT, ANSWER]
                for message in messages[:before]:
                    await ws.send(message)
                events = await until(ws, "streamer.ack")
                # what the server has not taken yet is no turn in flight
                while events[-1]["messages"] <= before:
                    events += await until(ws, "streamer.ack")
                await ready.wait()
                if not gone.is_set():
                    gone.set()
                    process.send_signal(signal.SIGTERM)
                while http(url, "/readyz")[0] == 200:
                    await asyncio.sleep(0.02)
                for message in messages[before:]:
                    await ws.send(message)
                with contextlib.suppress(websockets.ConnectionClosed):
                    async for message in ws:
                        events.append(json.loads(message))
                return text_of(events), ws.close_code

        async def main():
            ready, gone = asyncio.Barrier(4), asyncio.Event()
            return await asyncio.gather(*(one(before, ready, gone) for before in (1, 2, 3, 4)))

        found = asyncio.run(main())
        assert len(set(found)) == 1
        assert found[0][0]
        assert found[0][1] == 1012
        assert process.wait(EXIT_S) == 0


@pytest.fixture(scope="module")
def forgetful():
    """A server that keeps no session whose link is gone: (its address, the process)."""
    with serving("--resume-s", 0, "--max-sessions", 8) as found:
        yield found


async def test_a_stopped_client_is_let_go_within_twenty_seconds(forgetful):
    """SIGSTOP: the socket stays open, nobody answers; its place is free again."""
    url, _ = forgetful
    with subprocess.Popen(
        [sys.executable, "-c", LISTENER, url], stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout.readline() == "open\n"
        assert "\nstreamer_sessions 1.0" in http(url, "/metrics")[1]
        client.send_signal(signal.SIGSTOP)
        started = time.monotonic()
        try:
            while "\nstreamer_sessions 0.0" not in http(url, "/metrics")[1]:
                assert time.monotonic() - started < 20
                await asyncio.sleep(0.2)
        finally:
            client.kill()
    assert await say(url, 1)


@pytest.mark.parametrize("seconds", [120, pytest.param(3_600, marks=pytest.mark.long)])
async def test_silence_costs_nothing_and_says_nothing(seconds):
    """As fast as the server takes it: no event, no turn, flat memory, a few percent of the audio's
    time."""
    with serving() as (url, process):
        await say(url, 1)
        async with connect(url) as ws:
            await ws.send(session_update(vad=VAD, binary=True, events=True, live_update_s=1.0))
            await until(ws, "session.updated")
            for _ in range(50):  # what grows once has grown
                await ws.send(bytes(32_000))
            await (await ws.ping())
            memory, cpu = memory_mb(process), cpu_s(process)
            for _ in range(seconds):
                await ws.send(bytes(32_000))
            await (await ws.ping())
            assert memory_mb(process) - memory < 20
            assert cpu_s(process) - cpu < 0.1 * seconds
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ws.recv(), 0.5)
            assert 'streamer_turns_total{stop_reason="no_speech"} 0.0' in http(url, "/metrics")[1]
            await ws.send(pcm(speech(3, 2)) + bytes(48_000))  # and then somebody speaks
            assert text_of(await until(ws, "response.done"))


@pytest.mark.parametrize("times", [5, pytest.param(50, marks=pytest.mark.long)])
async def test_memory_returns_after_clients_that_were_killed(forgetful, times):
    url, process = forgetful

    async def vanish(i):
        ws = await connect(url)
        await ws.send(session_update(vad=VAD, binary=True, live_update_s=0.5))
        await ws.send(pcm(speech(4, i % 16)))
        await asyncio.sleep(0.02 * (i % 10))
        ws.transport.abort()

    await asyncio.gather(*(vanish(i) for i in range(8)))
    await until_left(url)
    memory = memory_mb(process)
    for i in range(times):
        await vanish(i)
    await until_left(url)
    depths = re.findall(
        r'^streamer_queue_depth\{queue="(\w+)"\} (\S+)', http(url, "/metrics")[1], re.M
    )
    assert {depth for _, depth in depths} == {"0.0"}
    assert memory_mb(process) - memory < 30
    assert await say(url, 1)
