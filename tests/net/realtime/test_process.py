"""The server as a process: which clients it admits, how it ends, and its use of memory and CPU."""

import asyncio
import contextlib
import json
import signal

import anyio
import pytest
import websockets
from fake_session import opening
from patience import EXIT_S
from processes import memory_mb, started
from speech import pcm, speech
from websockets.asyncio.client import connect
from wire import (
    ANSWER,
    COMMIT,
    describe,
    http,
    running,
    serving,
    session_update,
    text_of,
    until,
    until_metric,
)

from streamer.net.service.service import DRAIN_S

VAD = {"type": "server_vad"}
UPDATE = session_update(binary=True)


async def to_the_end(ws):
    """The events up to the close of the socket."""
    events = []
    with contextlib.suppress(websockets.ConnectionClosed):
        async for message in ws:
            events.append(json.loads(message))
    return events


def test_turns_in_flight_are_answered_before_the_server_ends():
    """Wherever SIGTERM comes in a turn: sentence, close 1012, exit 0."""
    data = pcm(speech(4, 1))
    with serving("--mode", "exact", "--max-sessions", 16) as (url, process):

        async def one(before, ready):
            async with connect(url) as ws:
                vad = VAD if before is None else None
                await ws.send(session_update(vad=vad, binary=True, acks=True))
                messages = [data[:30_000], data[30_000:], COMMIT, ANSWER]
                for message in messages[: 2 if before is None else before]:
                    await ws.send(message)
                if before is None:
                    await until(ws, "input_audio_buffer.speech_started")
                events = await until(ws, "streamer.ack")
                while events[-1]["messages"] <= (before or 2):
                    events += await until(ws, "streamer.ack")
                if await ready.wait() == 0:
                    process.send_signal(signal.SIGTERM)
                while http(url, "/readyz")[0] == 200:
                    await asyncio.sleep(0.02)
                for message in [] if before is None else messages[before:]:
                    await ws.send(message)
                events += await to_the_end(ws)
                return before is None, text_of(events), ws.close_code

        async def main():
            wanted = [1, 2, 3, 4, *[None] * 12]
            ready = asyncio.Barrier(len(wanted))
            return await asyncio.gather(*(one(before, ready) for before in wanted))

        found = set(asyncio.run(main()))
        assert len(found) == 2, "those of voice activity, and the others"
        assert all(text and code == 1012 for _, text, code in found)
        assert process.wait(EXIT_S) == 0


@pytest.mark.parametrize("messages", [[ANSWER], [COMMIT]], ids=["uncommitted", "unasked"])
def test_ctrl_c_says_what_it_waits_for_and_ends(messages):
    """A client that is silent now has nothing to wait for."""
    end = "response.done" if messages == [ANSWER] else "input_audio_buffer.committed"
    with started("serve", "--mode", "edge", "--port", 0) as process:
        url = process.stdout.readline().split()[2]

        async def main():
            async with connect(url) as ws:
                for message in (UPDATE, pcm(speech(2, 1)), *messages):
                    await ws.send(message)
                await until(ws, end)
                process.send_signal(signal.SIGINT)
                await to_the_end(ws)

        asyncio.run(main())
        _, complaints = process.communicate(timeout=EXIT_S)  # less than DRAIN_S
    assert "a second Ctrl-C or SIGTERM ends at once" in complaints


async def test_the_second_stop_ends_at_once():
    script = opening(waits=True, is_slow=True)
    async with running(script) as (url, server), connect(url) as ws:
        for message in (UPDATE, bytes(320), COMMIT, ANSWER, UPDATE):
            await ws.send(message)
        for _ in range(2):  # after the second one the answer is asked for
            await until(ws, "session.updated")
        with anyio.fail_after(DRAIN_S / 2):
            server.stop()
            await anyio.sleep(0.1)
            assert ws.close_code is None
            server.stop()
            await to_the_end(ws)


async def say(url, seed):
    async with connect(url) as ws:
        await ws.send(UPDATE)
        return text_of(await describe(ws, pcm(speech(3, seed)), seed))


async def test_clients_that_vanish_leave_nothing_behind():
    """Cut off at any moment: no sessions, queues, memory or slots stay."""
    with serving("--mode", "exact", "--resume-s", 0, "--max-sessions", 8) as (url, process):

        async def vanish(i):
            ws = await connect(url)
            await ws.send(session_update(vad=VAD, binary=True, live_update_s=0.5))
            await ws.send(pcm(speech(0.5 + i % 6, i % 16)))
            await asyncio.sleep(0.03 * (i % 10))
            ws.transport.abort()

        await asyncio.gather(*(vanish(i) for i in range(8)))
        await until_metric(url, "streamer_sessions 0.0")
        memory = memory_mb(process)
        for i in range(6):
            await vanish(i)
        await until_metric(url, "streamer_sessions 0.0")
        for queue in ("pieces", "turns", "events", "unread"):
            await until_metric(url, f'streamer_queue_depth{{queue="{queue}"}} 0.0')
        assert memory_mb(process) - memory < 30
        assert all(await asyncio.gather(*(say(url, i) for i in range(8))))
