"""Which turns are open, committed, asked for, answered. In: what happens. Out: numbers."""

from __future__ import annotations


class Turns:
    """Turns count from 0; each number below is of the last turn that got so far, -1 of none."""

    def __init__(self) -> None:
        self.committed = self.asked = self.done = -1
        self.is_speaking = False  # voice activity has begun a turn
        self._num_open_bytes = 0  # taken since the last commit, where the client ends its turns

    def fed(self, num_bytes: int, is_detected: bool) -> None:
        """Audio was taken; `is_detected`: voice activity says which of it is a turn."""
        self._num_open_bytes = 0 if is_detected else self._num_open_bytes + num_bytes

    def started(self) -> None:
        self.is_speaking = True

    def closed(self, turn: int, is_asked: bool) -> None:
        """The turn's audio is over; `is_asked`: it is answered without a word of the client."""
        self.committed = max(self.committed, turn)
        self.is_speaking = False
        self._num_open_bytes = 0
        if is_asked:
            self.asked = max(self.asked, turn)

    def cleared(self) -> None:
        self.is_speaking = False
        self._num_open_bytes = 0

    def ask(self) -> None:
        """The client wants the last committed turn answered."""
        self.asked = self.committed

    def answered(self, turn: int) -> None:
        """Described or failed; turns before it that nobody asked for never will be."""
        self.done = max(self.done, turn)

    @property
    def is_open(self) -> bool:
        """Whether there is audio that is not committed."""
        return self.is_speaking or self._num_open_bytes > 0

    @property
    def is_unasked(self) -> bool:
        """Whether a committed turn waits to be asked for."""
        return self.committed > max(self.asked, self.done)

    @property
    def is_asked(self) -> bool:
        """Whether an answer is being written, or about to be."""
        return self.asked > self.done

    @property
    def last_in_flight(self) -> int:
        """The turn with which everything that is in hand now will be answered."""
        return self.committed + self.is_open
