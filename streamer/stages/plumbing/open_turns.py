"""A stream's open turns and their KV slots: whatever stage dies or is cancelled, none is leaked."""

from __future__ import annotations

import anyio

from streamer.stages.plumbing.messages import Turn
from streamer.stages.plumbing.ports import Parts

SLOT_WAIT_S = 120.0  # twice the longest turn
FULL = (
    f"other streams have held every KV slot for {SLOT_WAIT_S:g} s; commit or clear their turns, or "
    "give more slots"
)


class Books:
    """Opens and closes turns; the one owner of which are open. `close_all` when the stream has
    ended.

    last_closed: number of the last turn whose audio is over.
    """

    def __init__(self, parts: Parts) -> None:
        self.last_closed = -1
        self._parts = parts
        self._open: set[Turn] = set()

    @property
    def num_open(self) -> int:
        return len(self._open)

    async def open(self, number: int) -> Turn:
        """A turn with a slot on every model. Waits while other streams hold all of them, for
        SLOT_WAIT_S; then it has `failed`, and no slot."""
        # where this stream has turns, the wait is for them
        with anyio.move_on_after(None if self._open else SLOT_WAIT_S) as scope:
            await self._parts.slots.acquire()
        turn = Turn(number)
        if scope.cancelled_caught:
            turn.failed = FULL
            return turn
        self._open.add(turn)
        try:
            turn.edge = self._parts.edge.listen() if self._parts.edge else None
            turn.cloud = self._parts.target()
        except Exception:
            self.close(turn)
            raise
        return turn

    def close(self, turn: Turn) -> None:
        """Give the turn's slots back; a second call does nothing."""
        if turn not in self._open:
            return
        self._open.remove(turn)
        for hearer in (turn.edge, turn.cloud):
            if hearer is not None:
                hearer.close()
        self._parts.slots.release()

    def close_all(self) -> None:
        for turn in list(self._open):
            self.close(turn)
