"""Who hears beside the stages is told that there is something to do. In: a session's hearing. Out:
what works: a turn's measurer, the session's coach.

A poke is dropped where one waits already: whoever works holds what is to be done. It is dropped,
too, where nobody works any more: a session that ends may still hear its last piece.
"""

from __future__ import annotations

from contextlib import suppress

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from streamer.stages.plumbing.ports import Ear, Hearing, Measurer


class Pokes:
    """`poke` after each push; closed by `async with`."""

    def __init__(
        self,
        measuring: MemoryObjectSendStream[Measurer],
        coaching: MemoryObjectSendStream[Ear],
        hearing: Hearing,
    ) -> None:
        self._measuring = measuring
        self._coaching = coaching
        self._hearing = hearing

    def poke(self) -> None:
        with suppress(anyio.WouldBlock, anyio.BrokenResourceError):
            if self._hearing.measurer is not None:
                self._measuring.send_nowait(self._hearing.measurer)
        with suppress(anyio.WouldBlock, anyio.BrokenResourceError):
            if self._hearing.coach is not None:
                self._coaching.send_nowait(self._hearing.coach)

    async def __aenter__(self) -> Pokes:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._measuring.close()
        self._coaching.close()
