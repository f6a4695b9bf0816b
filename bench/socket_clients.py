"""Clients that speak over a real socket and note times where they read."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from websockets.asyncio.client import ClientConnection, connect

from bench.clips import Clip

PIECE_S = 0.02
TAIL_S = 6.0  # the end of a turn is always played at real time
SPREAD_S = 2.0  # clients of one round start within
UPDATE = {
    "type": "session.update",
    "session": {
        "type": "realtime",
        "streamer": {"binary": True, "events": True, "acks": True},
        "audio": {
            "input": {"format": {"type": "audio/pcm", "rate": 16_000}, "turn_detection": None}
        },
    },
}
COMMIT = '{"type": "input_audio_buffer.commit"}'
ANSWER = '{"type": "response.create"}'


@dataclass(frozen=True)
class Timing:
    """Milliseconds at the client since the last sample was sent.

    lag: age of the oldest sample that the server had not acknowledged, at most.
    """

    ttft: float
    total: float
    lag: float


def pcm_of(clip: Clip) -> bytes:
    return (clip.samples * 32767).astype("<i2").tobytes()


def due_at(sent_s: float, whole_s: float, lead: float) -> float:
    """Seconds from a turn's beginning at which the piece that ends at `sent_s` is sent."""
    quick_s = min(sent_s, max(0.0, whole_s - TAIL_S)) if lead > 1 else 0.0
    return quick_s / lead + sent_s - quick_s


async def play(url: str, clip: Clip, delay_s: float, lead: float = 1.0) -> Timing | None:
    """One turn as a microphone would send it; None if it is taken for no speech."""
    await asyncio.sleep(delay_s)
    pcm = pcm_of(clip)
    size = 2 * int(16_000 * PIECE_S)
    async with connect(url, compression=None) as socket:
        await socket.send(json.dumps(UPDATE))
        sent: list[tuple[int, float]] = []  # (bytes so far, time)
        started = time.perf_counter()
        reading = asyncio.create_task(_read(socket, sent))
        for i, at in enumerate(range(0, len(pcm), size)):
            due = started + due_at((i + 1) * PIECE_S, len(clip.samples) / 16_000, lead)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await socket.send(pcm[at : at + size])
            sent.append((at + size, time.perf_counter()))
        await socket.send(COMMIT)
        await socket.send(ANSWER)
        return await reading


async def _read(socket: ClientConnection, sent: list[tuple[int, float]]) -> Timing | None:
    """Read to the turn's description. Acknowledged pieces leave the front of `sent`."""
    came: list[float] = []
    lag = ended = 0.0
    async for message in socket:
        event, now = json.loads(message), time.perf_counter()
        ended = sent[-1][1] if sent else ended
        if event["type"] == "streamer.ack":
            while sent and sent[0][0] <= event["bytes"]:
                ended = sent.pop(0)[1]
            lag = max(lag, now - sent[0][1] if sent else 0.0)
        if event["type"] == "streamer.delta" and event["text"]:
            came.append(1000 * (now - ended))
        if event["type"] == "streamer.description":
            return Timing(came[0], came[-1], 1000 * lag) if came else None
    raise RuntimeError("the server closed the connection")


async def play_all(url: str, clips: Sequence[Clip], num_clients: int) -> list[Timing]:
    """Every clip once, `num_clients` at a time, with starts spread over SPREAD_S."""
    found: list[Timing] = []
    for first in range(0, len(clips), num_clients):
        some = clips[first : first + num_clients]
        delays = [SPREAD_S * i / num_clients for i in range(len(some))]
        turns = (play(url, c, d) for c, d in zip(some, delays, strict=True))
        found += [timing for timing in await asyncio.gather(*turns) if timing is not None]
    return found
