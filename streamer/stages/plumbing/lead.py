"""Who gives way to whom. In: how much audio came, whose turn is answered. Out: a wait, or none.

A client may push: send faster than anybody speaks. What it pushes takes the cores that others leave
free. While one that speaks waits for words, hearing what is pushed waits, and so does its answer,
for GIVE_WAY_S at most. docs/measured.md tells what that wins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio

GIVE_WAY_S = 0.05  # before each piece, or pieces joined, and before an answer
SPEED = 1.25  # times real time; clocks differ, and who is late may hurry
AHEAD_S = 1.0  # of that: a client's own buffers are smaller
MOST_S = 3.0  # more is not counted: who stops to push is soon one who speaks
LATE_S = 5.0  # of audio that may come late at once: a line was down, or is just there


class Answers:
    """Of all streams on one event loop: whether one that does not push waits for words."""

    def __init__(self) -> None:
        self._num_waiting = 0
        self._is_calm = anyio.Event()

    @contextmanager
    def waited_for(self) -> Iterator[None]:
        """Somebody waits for words inside."""
        self._num_waiting += 1
        try:
            yield
        finally:
            self._num_waiting -= 1
            if not self._num_waiting:
                self._is_calm.set()
                self._is_calm = anyio.Event()

    async def over(self) -> None:
        """Nobody waits for words, or GIVE_WAY_S have passed."""
        if self._num_waiting:
            with anyio.move_on_after(GIVE_WAY_S):
                await self._is_calm.wait()


class Lead:
    """How far one stream's audio is ahead of real time, and what follows.

    clock: seconds. is_recording: it is no speech of now, so it always pushes. Streams that push do
    not wait for one another: recordings alone are as quick as ever.
    """

    def __init__(
        self,
        answers: Answers,
        clock: Callable[[], float] = time.monotonic,
        is_recording: bool = False,
    ) -> None:
        self._answers = answers
        self._clock = clock
        self._is_recording = is_recording
        self._lead_s = -LATE_S  # at _at
        self._at = clock()

    def came(self, seconds: float) -> None:
        """So much audio came now."""
        now = self._clock()
        self._lead_s = min(MOST_S, max(-LATE_S, self._at_speed(now)) + seconds)
        self._at = now

    @property
    def pushes(self) -> bool:
        return self._is_recording or self._at_speed(self._clock()) > AHEAD_S

    async def give_way(self) -> None:
        """Before something is heard or answered: wait, where this stream pushes."""
        if self.pushes:
            await self._answers.over()

    @contextmanager
    def answered(self) -> Iterator[None]:
        """The stream's turn is answered inside; where it does not push, others give way."""
        if self.pushes:
            yield
        else:
            with self._answers.waited_for():
                yield

    def _at_speed(self, now: float) -> float:
        return self._lead_s - SPEED * (now - self._at)
