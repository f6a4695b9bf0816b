"""Where a stream's events leave it. Bounded: 256 events, and 10 s for a reader that takes none."""

from __future__ import annotations

from contextlib import suppress

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from streamer.stages.events import Event

MAX_EVENTS = 256
MAX_WAIT_S = 10.0


class SlowReader(RuntimeError):
    """The events of a stream were not read for 10 s; the stream ends, nobody else's does."""


class Outlet:
    """One stage's sending end; each stage holds a clone and closes it at its end."""

    def __init__(self, stream: MemoryObjectSendStream[Event]) -> None:
        self._stream = stream

    def clone(self) -> Outlet:
        return Outlet(self._stream.clone())

    async def send(self, event: Event) -> None:
        """Hand `event` to the reader, who may have gone away. Raises SlowReader."""
        try:
            # nearly always there is room, and no need of a clock
            self._stream.send_nowait(event)
        except anyio.WouldBlock:
            await self._wait(event)
        except anyio.BrokenResourceError:
            return

    def offer(self, event: Event) -> None:
        """Hand on an event that another of its kind will replace soon: not to a slow reader."""
        if self._stream.statistics().current_buffer_used < MAX_EVENTS // 2:
            with suppress(anyio.WouldBlock, anyio.BrokenResourceError):
                self._stream.send_nowait(event)

    async def _wait(self, event: Event) -> None:
        try:
            with anyio.fail_after(MAX_WAIT_S):
                await self._stream.send(event)
        except TimeoutError:
            raise SlowReader(
                f"no event was read for {MAX_WAIT_S:g} s; read them while feeding"
            ) from None
        except anyio.BrokenResourceError:
            return

    async def __aenter__(self) -> Outlet:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stream.close()
