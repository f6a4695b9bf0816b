"""One stream of bench.load, at real time. In: a session, clips. Out: when the first text of each
turn came, and how late a feed was."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import anyio

from bench.clips import Clip
from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.description import Description, TextDelta

PIECE_S = 0.1


def turns_of(seconds: float) -> int:
    """Turns a stream speaks, so that a level takes about as long as two turns of 10 s, or one of
    `seconds`."""
    return 2 if seconds <= 10 else 1


class Player:
    """One stream: feeds turn after turn at real time; notes when the first text came and how late a
    feed was."""

    def __init__(self, session: Any, clips: Sequence[Clip]) -> None:
        self.ttft_ms: list[float] = []
        self.late_ms = 0.0
        self._session = session
        self._clips = clips
        self._committed_at: float | None = None
        self._over = anyio.Event()

    async def run(self, delay_s: float) -> None:
        await anyio.sleep(delay_s)
        async with anyio.create_task_group() as group:
            group.start_soon(self._read)
            for clip in self._clips:
                await self._play((clip.samples * 32767).astype("<i2").tobytes())
                self._committed_at = time.perf_counter()
                self._over = anyio.Event()
                await self._session.commit()
                await self._over.wait()
            group.cancel_scope.cancel()

    async def _play(self, pcm: bytes) -> None:
        size = 2 * int(SAMPLE_RATE_HZ * PIECE_S)
        started = time.perf_counter()
        for i, at in enumerate(range(0, len(pcm), size), start=1):
            due = started + i * PIECE_S
            await anyio.sleep(max(0.0, due - time.perf_counter()))
            await self._session.feed(pcm[at : at + size])
            self.late_ms = max(self.late_ms, 1000 * (time.perf_counter() - due))

    async def _read(self) -> None:
        async for event in self._session.events():
            if isinstance(event, TextDelta) and event.text and self._committed_at is not None:
                self.ttft_ms.append(1000 * (time.perf_counter() - self._committed_at))
                self._committed_at = None
            if isinstance(event, Description):
                self._over.set()
