"""A session beside another program's audio: frames are taken without waiting, and the program says
where turns begin and end.

Voice agents detect turns themselves and must not be held up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import numpy as np
import soxr

from streamer.config import Config
from streamer.core.audio.pcm import QUALITY
from streamer.core.description import Description
from streamer.describer import Describer
from streamer.stages.events import NothingToCommit, SessionOptions, TurnFailed
from streamer.stages.stream import LiveSession

MAX_FRAMES = 1_000  # that wait, while models load or a turn ends: 10 s of frames of 10 ms
BEFORE_S = 1.5  # detectors report speech late


@dataclass(eq=False)
class _Turn:
    """frames: those that wait. lost_s: audio that was left out. found: once `is_done`, unless the
    turn failed."""

    frames: list[bytes]
    is_ended: bool = False
    lost_s: float = 0.0
    found: Description | None = None
    is_done: anyio.Event = field(default_factory=anyio.Event)

    async def described(self) -> Description | None:
        """The description, with a warning where audio was left out."""
        await self.is_done.wait()
        if self.found is None or not self.lost_s:
            return self.found
        told = f"{self.lost_s:.1f} s of audio were left out"
        lines = f"{told}: feed frames no faster than they are spoken", self.found.warning
        return replace(self.found, warning="; ".join(filter(None, lines)))


class BackgroundSession:
    """`feed` and `begin` never wait; `end` gives the turn's description. `run` must be running in a
    task of its own.

    config: options of the describer. before_s: seconds of audio from before `begin` that still
    belong to the turn.
    """

    def __init__(self, config: Config | None = None, *, before_s: float = BEFORE_S) -> None:
        self._config = config or Config()
        self._before_s = before_s
        self._before = b""
        self._rate = 0  # of the first frame, and of the session
        self._last_rate = 0  # of the last frame
        self._resampler: soxr.ResampleStream | None = None  # where these two differ
        self._turns: deque[_Turn] = deque()  # those that are not described
        self._turn: _Turn | None = None  # the one that is spoken
        self._came = anyio.Event()
        self._is_over = False

    async def run(self) -> None:
        """Load the models and serve the calls until cancelled. Raises ModelError."""
        try:
            async with Describer.open(self._config) as describer:
                await describer.load()
                while not self._rate:
                    await self._more()
                async with describer.session(self._rate, measures=True) as session:
                    while True:
                        while not self._turns:
                            await self._more()
                        await self._hear(self._turns[0], session)
                        self._turns.popleft().is_done.set()
        finally:  # later calls return at once
            self._is_over = True
            for turn in self._turns:
                turn.is_done.set()

    async def _hear(self, turn: _Turn, session: LiveSession) -> None:
        """Feed a turn's frames as they come, and describe it."""
        events: Any = session.events()
        while turn.frames or not turn.is_ended:
            frames, turn.frames = turn.frames, []
            await session.feed(b"".join(frames))
            with suppress(anyio.WouldBlock):  # left unread, they would end the session
                while True:
                    events.receive_nowait()
            if not (turn.frames or turn.is_ended):
                await self._more()
        with suppress(NothingToCommit):  # no frame came between `begin` and `end`
            number = await session.commit()
            async for event in events:
                if isinstance(event, Description | TurnFailed) and event.turn == number:
                    turn.found = event if isinstance(event, Description) else None
                    break

    async def _more(self) -> None:
        self._came = anyio.Event()
        await self._came.wait()

    def feed(self, pcm: bytes, sample_rate: int) -> bool:
        """Take a frame of PCM16 mono; another rate than the first frame's is converted. False: it
        was left out, since 1,000 frames wait or `run` has ended. Raises TypeError and ValueError
        for what is no such frame."""
        pcm = memoryview(pcm).tobytes()  # it may be an array, too
        if len(pcm) % 2:
            raise ValueError(f"{len(pcm)} bytes are no PCM16: each sample has two")
        if not sample_rate or sample_rate != self._last_rate:
            SessionOptions(sample_rate)  # raises ValueError
            self._rate = self._rate or sample_rate
            self._last_rate = sample_rate
            self._resampler = None
            if sample_rate != self._rate:
                self._resampler = soxr.ResampleStream(sample_rate, self._rate, 1, "int16", QUALITY)
        if self._resampler is not None:
            pcm = self._resampler.resample_chunk(np.frombuffer(pcm, np.int16)).tobytes()
        self._came.set()
        if self._turn is None:  # nothing hears it unless speech begins
            before = self._before + pcm
            self._before = before[max(0, len(before) - 2 * int(self._before_s * self._rate)) :]
        elif sum(len(turn.frames) for turn in self._turns) < MAX_FRAMES and not self._is_over:
            self._turn.frames.append(pcm)
        else:
            self._turn.lost_s += len(pcm) / 2 / self._rate
            return False
        return not self._is_over

    def begin(self) -> bool:
        """Speech begins; the turn has the last `before_s` of earlier audio too. Calls within a turn
        do nothing. False: `run` has ended, or 1,000 turns wait."""
        if self._turn is None:
            if self._is_over or len(self._turns) >= MAX_FRAMES:
                return False
            self._turn = _Turn([self._before])
            self._before = b""
            self._turns.append(self._turn)
            self._came.set()
        return not self._is_over

    def end(self) -> Coroutine[Any, Any, Description | None]:
        """End the turn, by the call itself; await its description. None: `begin` was not called
        since the last one, or the turn failed. Its `warning` tells audio that was left out."""
        turn, self._turn = self._turn or _Turn([]), None
        turn.is_ended = True
        if turn not in self._turns or not self._rate:
            turn.is_done.set()
        self._came.set()
        return turn.described()
