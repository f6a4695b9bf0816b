"""A live session in Python: PCM16 bytes in, typed events out while audio is fed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio

from streamer.core.coach.baseline import Baseline
from streamer.core.description import Description
from streamer.stages.events import Event, SessionOptions, TurnFailed
from streamer.stages.stream import Stream


class LiveSession:
    """`feed`, `commit`, iterate. One task may feed while another iterates.

    Without turn detection an iteration ends with its turn's Description: commit, iterate; feed,
    commit, iterate. With turn detection it goes on until `end`. Left unread for 10 s, more than 256
    events end the session (SlowReader).
    """

    def __init__(self, stream: Stream, options: SessionOptions) -> None:
        self._stream = stream
        self._options = options
        self._is_ended = False

    @property
    def num_bytes_fed(self) -> int:
        """Bytes of PCM that were taken."""
        return self._stream.num_bytes_fed

    @property
    def baseline(self) -> Baseline | None:
        """How the speaker usually speaks, where a coach was asked for: given, learnt, or from the
        speech so far. None under 5 s of speech. `baseline.save("me.json")` keeps it."""
        return self._stream.baseline

    async def feed(self, pcm: bytes) -> None:
        """PCM16 little-endian mono at the session's rate, any number of bytes; waits while 5 s are
        in hand.

        Raises TypeError for anything but bytes (of a numpy array give `array.tobytes()`), and
        anyio.ClosedResourceError after `end`.
        """
        if not isinstance(pcm, bytes | bytearray | memoryview):
            kind = f"feed takes bytes of PCM16, not {type(pcm).__name__}"
            raise TypeError(f"{kind}; of an int16 array give .tobytes()")
        if self._is_ended:
            raise anyio.ClosedResourceError("the session has ended; open another one")
        await self._stream.feed(bytes(pcm))

    async def commit(self) -> int:
        """End the turn; its number. Raises NothingToCommit where nothing was fed since the last."""
        return await self._stream.commit()

    async def answer(self) -> None:
        """Answer the last committed turn, in a session with `answers_itself=False`."""
        await self._stream.answer()

    async def clear(self) -> None:
        """Forget the audio that is not committed yet."""
        await self._stream.clear()

    async def cancel(self) -> None:
        """Stop answering: committed text stays, the Description has stop_reason `cancelled`."""
        await self._stream.cancel()

    async def end(self) -> None:
        """No more audio: all that was fed is answered, then the events end."""
        self._is_ended = True
        await self._stream.end()

    def events(self) -> AsyncIterator[Event]:
        """Every event until the session ends."""
        return self._stream.events()

    def __aiter__(self) -> AsyncIterator[Event]:
        return _Iteration(self)

    def ends_with(self, event: Event) -> bool:
        """Whether an iteration ends with `event`."""
        is_over = isinstance(event, Description | TurnFailed)
        return is_over and self._options.turn_detection is None and not self._is_ended


class _Iteration:
    """One `async for`; may be left at any time, and another one started."""

    def __init__(self, session: LiveSession) -> None:
        self._session = session
        self._events = session.events()
        self._is_over = False

    def __aiter__(self) -> _Iteration:
        return self

    async def __anext__(self) -> Event:
        if self._is_over:
            raise StopAsyncIteration
        event = await anext(self._events)
        self._is_over = self._session.ends_with(event)
        return event
