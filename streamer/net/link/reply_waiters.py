"""Who waits for a turn's verdicts. In: requests that are sent, replies. Out: each to its waiter."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import anyio

from streamer.core.decoding.verdict import Refusal, Verdict


@dataclass(eq=False)
class _ReplyWaiter:
    asked_at: float  # or sent, where that came later
    reply: Verdict | Refusal | str = ""  # a text: why there is none
    is_given_up: bool = False
    over: anyio.Event = field(default_factory=anyio.Event)


class ReplyWaiters:
    """Of one turn, by the number of the request."""

    def __init__(self) -> None:
        self._waiting: dict[int, _ReplyWaiter] = {}
        self._sent: set[int] = set()  # on whatever link

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, number: int, now: float) -> Verdict | Refusal | str:
        """The reply, or in one line why there will be none."""
        waiter = self._waiting[number] = _ReplyWaiter(now)
        try:
            await waiter.over.wait()
        finally:
            self._waiting.pop(number, None)
        return waiter.reply

    def sent(self, number: int, now: float) -> None:
        """The request was written."""
        self._sent.add(number)
        if (waiter := self._waiting.get(number)) is not None:
            waiter.asked_at = now

    def has_sent(self, number: int) -> bool:
        return number in self._sent

    @property
    def are_unsent(self) -> bool:
        """Whether some wait, and the verifier knows of none of them."""
        return bool(self._waiting) and self._sent.isdisjoint(self._waiting)

    def answer(self, reply: Verdict | Refusal) -> None:
        if (waiter := self._waiting.get(reply.number)) is not None:
            waiter.reply = reply
            waiter.over.set()

    def tell(self, why: str) -> None:
        """No reply will come to those who wait now."""
        for waiter in self._waiting.values():
            waiter.reply = why
            waiter.over.set()

    def given_up(self) -> float:
        """Nobody waits longer: when the oldest of those given up now was asked, or infinity."""
        fresh = [waiter for waiter in self._waiting.values() if not waiter.is_given_up]
        for waiter in fresh:
            waiter.is_given_up = True
        return min((waiter.asked_at for waiter in fresh), default=math.inf)
