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
from streamer.core.audio.chunker import QUALITY
from streamer.core.description import Description
from streamer.describer import Describer
from streamer.stages.events import NothingToCommit, SessionOptions, TurnFailed
from streamer.stages.stream import LiveSession

MAX_FRAMES = 1_000  # that wait, while models load or a turn ends: 10 s of frames of 10 ms
BEFORE_S = 1.5  # detectors report speech late


@dataclass(eq=False)
class _End:
    """A turn's end, and its description once it is there."""

    lost_s: float  # audio of the turn that was left out
    turn: int | None = None
    found: Description | None = None
    is_done: anyio.Event = field(default_factory=anyio.Event)

    async def wait(self) -> Description | None:
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
        self._items: deque[bytes | _End] = deque()  # of turns
        self._came = anyio.Event()
        self._is_over = False
        self._in_turn = False
        self._lost_s = 0.0  # audio of that turn that was left out
        self._waiting: set[_End] = set()
        self._last: Description | TurnFailed | None = None  # it may come before `commit` returns

    async def run(self) -> None:
        """Load the models and serve the calls until cancelled. Raises ModelError."""
        try:
            async with Describer.open(self._config) as describer:
                await describer.load()
                while not self._rate:
                    await self._more()
                async with (
                    describer.session(self._rate, measures=True) as session,
                    anyio.create_task_group() as group,
                ):
                    group.start_soon(self._read, session)
                    while True:
                        while self._items:
                            item = self._items.popleft()
                            if isinstance(item, _End):
                                await self._commit(session, item)
                            else:
                                await session.feed(item)
                        await self._more()
        finally:  # later calls return at once
            self._is_over = True
            for end in self._waiting:
                end.is_done.set()

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
        if not self._in_turn:  # nothing hears it unless speech begins
            before = self._before + pcm
            self._before = before[max(0, len(before) - 2 * int(self._before_s * self._rate)) :]
            self._came.set()
            return not self._is_over
        is_taken = self._put(pcm, MAX_FRAMES)
        if not is_taken:
            self._lost_s += len(pcm) / 2 / self._rate
        return is_taken

    def begin(self) -> bool:
        """Speech begins; the turn has the last `before_s` of earlier audio too. Calls within a turn
        do nothing. False: `run` has ended."""
        if self._in_turn:
            return not self._is_over
        self._in_turn, self._lost_s = True, 0.0
        before, self._before = self._before, b""
        return self._put(before)

    def end(self) -> Coroutine[Any, Any, Description | None]:
        """End the turn, by the call itself; await its description. None: `begin` was not called
        since the last one, or the turn failed. Its `warning` tells audio that was left out."""
        end = _End(self._lost_s)
        was_in_turn, self._in_turn = self._in_turn, False
        if was_in_turn and self._rate and self._put(end):
            self._waiting.add(end)
        else:
            end.is_done.set()
        return end.wait()

    def _put(self, item: bytes | _End, most: int = 2 * MAX_FRAMES) -> bool:
        if self._is_over or len(self._items) >= most:
            return False
        self._items.append(item)
        self._came.set()
        return True

    async def _commit(self, session: LiveSession, end: _End) -> None:
        with suppress(NothingToCommit):  # no frame came between `begin` and `end`
            end.turn = await session.commit()
        if end.turn is None:
            self._done(end)
        elif self._last is not None and self._last.turn == end.turn:
            self._done(end, self._last)

    async def _read(self, session: LiveSession) -> None:
        """Hand on each turn's description; read all other events, which would end the session if
        they were left unread."""
        async for event in session.events():
            if isinstance(event, Description | TurnFailed):
                self._last = event
                for end in [end for end in self._waiting if end.turn == event.turn]:
                    self._done(end, event)

    def _done(self, end: _End, event: Description | TurnFailed | None = None) -> None:
        self._waiting.discard(end)
        end.found = event if isinstance(event, Description) else None
        end.is_done.set()
