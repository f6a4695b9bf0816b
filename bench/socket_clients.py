"""Clients that play recordings over a real socket and take times where they read. In: a URL, clips.
Out: Timings."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from websockets.asyncio.client import ClientConnection, connect

from bench.clips import Clip

PIECE_S = 0.02
TAIL_S = 6.0  # of a turn that is played at real time in any case: three windows
SPREAD_S = 2.0  # the clients of one round start within
EXTENSIONS = {"binary": True, "events": True, "acks": True}
UPDATE = {
    "type": "session.update",
    "session": {
        "type": "realtime",
        "streamer": EXTENSIONS,
        "audio": {
            "input": {"format": {"type": "audio/pcm", "rate": 16_000}, "turn_detection": None}
        },
    },
}


@dataclass(frozen=True)
class Timing:
    """Milliseconds at the client since the last sample was sent.

    itl: between deltas. lag: from the commit of a delta in the server to the client, clocks joined
    at the last sample. behind: how far the server was behind at worst, which is the age of the
    oldest sample that it had not taken when it said what it had. (The sender would not notice:
    buffers between the two take a minute.)
    """

    clip: str
    ttft: float
    total: float
    itl: tuple[float, ...]
    lag: tuple[float, ...]
    behind: float


def due_at(sent_s: float, whole_s: float, speed: float, lead: float) -> float:
    """When the piece that ends at `sent_s` of a turn is sent, in seconds from its beginning: all
    but the last TAIL_S at `lead` times real time, the rest, and a turn whose lead is 1, at `speed`
    times."""
    quick_s = min(sent_s, max(0.0, whole_s - TAIL_S)) if lead > 1 else 0.0
    return quick_s / lead + (sent_s - quick_s) / speed


async def play(
    url: str, clip: Clip, delay_s: float, speed: float = 1.0, lead: float = 1.0
) -> Timing | None:
    """One turn as a microphone would send it, its beginning maybe faster; None for one that is
    taken for no speech."""
    await asyncio.sleep(delay_s)
    pcm = (clip.samples * 32767).astype("<i2").tobytes()
    size = 2 * int(16_000 * PIECE_S)
    async with connect(url, compression=None) as socket:
        await socket.send(json.dumps(UPDATE))
        sent: list[tuple[int, float]] = []  # bytes so far, and when
        started = time.perf_counter()
        reading = asyncio.create_task(_read(socket, sent, clip.name))
        for i, at in enumerate(range(0, len(pcm), size)):
            due = started + due_at((i + 1) * PIECE_S, len(clip.samples) / 16_000, speed, lead)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await socket.send(pcm[at : at + size])
            sent.append((at + size, time.perf_counter()))
        await socket.send('{"type": "input_audio_buffer.commit"}')
        await socket.send('{"type": "response.create"}')
        return await reading


async def _read(
    socket: ClientConnection, sent: list[tuple[int, float]], name: str
) -> Timing | None:
    """Events to the turn's Description; what is acknowledged is dropped from the front of
    `sent`."""
    came = []
    said = []
    behind = 0.0
    ended = 0.0
    async for message in socket:
        event = json.loads(message)
        now = time.perf_counter()
        ended = sent[-1][1] if sent else ended
        if event["type"] == "streamer.ack":
            while sent and sent[0][0] <= event["bytes"]:
                ended = sent.pop(0)[1]
            behind = max(behind, now - sent[0][1] if sent else 0.0)
        if event["type"] == "streamer.delta" and event["text"]:
            came.append(1000 * (now - ended))
            said.append(event["at_ms"])
        if event["type"] == "streamer.description":
            if not came:
                return None
            itl = tuple(b - a for a, b in itertools.pairwise(came))
            lag = tuple(a - b for a, b in zip(came, said, strict=True))
            return Timing(name, came[0], came[-1], itl, lag, 1000 * behind)
    raise RuntimeError("the server closed the connection")


async def play_all(
    url: str, clips: Sequence[Clip], num_clients: int, speed: float = 1.0
) -> list[Timing]:
    """Every clip once, `num_clients` at a time, their starts spread over 2 s."""
    found: list[Timing] = []
    for first in range(0, len(clips), num_clients):
        some = clips[first : first + num_clients]
        delays = [SPREAD_S * i / num_clients for i in range(len(some))]
        played = await asyncio.gather(
            *(play(url, c, d, speed) for c, d in zip(some, delays, strict=True))
        )
        found += [timing for timing in played if timing is not None]
    return found
