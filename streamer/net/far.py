"""One turn on the link. In: what was heard, requests. Out: verdicts. Implements stages/parts.py's Target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from streamer.core import wire
from streamer.core.hearing import Closed, Heard
from streamer.core.remote import RemoteTurn, Terms
from streamer.core.verify import Refusal, Verdict, VerifyRequest
from streamer.stages.parts import TargetLost

if TYPE_CHECKING:
    from streamer.net.link import Link

REOPEN_S = 0.25  # before a turn that found no place asks again
PREFILL_S = 1.0  # that `prefilled` waits without anything new


class FarTarget:
    """Takes at once what it is told; `verify` waits for as long as its caller does, through any number of links."""

    def __init__(self, link: Link, channel: int, session: bytes, terms: Terms) -> None:
        self.turn = RemoteTurn(channel, session, terms)
        self.num_bytes_up = self.num_bytes_down = 0
        self._link, self.terms = link, terms
        self._is_wanted = link.verifier.eager  # lazy: from the first request on
        self._waiting: dict[int, _Waiting] = {}
        self._prefilled = anyio.Event()
        self._reopen_at = 0.0
        self._lost: str | None = None

    async def hear(self, heard: Heard) -> None:
        if heard.samples is not None and len(heard.samples):
            self.turn.hear(heard.samples)
            self._want()

    async def finish(self, closed: Closed) -> None:
        self.turn.finish()
        self._want()

    async def verify(self, request: VerifyRequest) -> Verdict | Refusal:
        """Raises TargetLost where the verifier has refused the turn, or us."""
        why = self._lost or self._link.lost
        if why is not None:
            raise TargetLost(why)
        verdict = self.turn.ask(request)
        if verdict is not None:
            return verdict
        self._is_wanted = True
        self._want()
        waiting = self._waiting[request.number] = _Waiting()
        try:
            await waiting.is_over.wait()
        finally:
            self._waiting.pop(request.number, None)
            self.turn.forget(request.number)
        if waiting.reply is None:
            raise TargetLost(self._lost or self._link.lost or "the verifier gave the turn up")
        return waiting.reply

    async def prefilled(self) -> None:
        """Wait until the verifier has prefilled all that was heard; a lazy one is not asked to."""
        while self._is_wanted and self._link.is_linked and self.turn.num_prefilled < self.turn.num_samples:
            self._prefilled = anyio.Event()
            with anyio.move_on_after(PREFILL_S):
                await self._prefilled.wait()
            if not self._prefilled.is_set():
                return

    @property
    def traffic(self) -> tuple[int, int]:
        return self.num_bytes_up, self.num_bytes_down

    def close(self) -> None:
        """A second call does nothing."""
        self._link.leave(self)

    def pull(self) -> wire.Up | None:
        """What the link is to send next."""
        if not self._is_wanted or self._lost is not None or self._link.clock() < self._reopen_at:
            return None
        return self.turn.pull()

    def take(self, message: wire.Down) -> None:
        """What came for this turn. Raises RemoteFault."""
        if isinstance(message, wire.Rejected):
            self._rejected(message)
            return
        reply = self.turn.take(message)
        if reply is not None:
            self._link.breaker.succeeded()
            if (waiting := self._waiting.get(reply.number)) is not None:
                waiting.answer(reply)
        self._prefilled.set()
        self._want()

    def unlinked(self) -> None:
        """The link was cut."""
        self._prefilled.set()

    def lose(self, why: str) -> None:
        """Nothing will come any more."""
        self._lost = why
        self._prefilled.set()
        for waiting in self._waiting.values():
            waiting.is_over.set()

    def _rejected(self, message: wire.Rejected) -> None:
        if message.epoch != self.turn.epoch:
            return
        if message.is_final:
            self.lose(f"{self._link.name} refuses: {message.reason}")
            return
        self._link.trouble = message.reason
        self._reopen_at = self._link.clock() + REOPEN_S
        self.turn.attach()

    def _want(self) -> None:
        if self._is_wanted:
            self._link.wake()


class _Waiting:
    """Somebody who waits for a reply."""

    def __init__(self) -> None:
        self.reply: Verdict | Refusal | None = None
        self.is_over = anyio.Event()

    def answer(self, reply: Verdict | Refusal) -> None:
        self.reply = reply
        self.is_over.set()
