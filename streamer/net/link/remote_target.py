"""One turn on the link. In: what was heard, requests. Out: verdicts. Implements
stages/plumbing/ports.py's Target."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

import anyio

from streamer.core.audio.turn_items import Closed, Heard
from streamer.core.decoding.verdict import Refusal, Verdict, VerifyRequest
from streamer.core.description import one_line
from streamer.core.link import wire
from streamer.core.link.backoff import jittered
from streamer.core.link.edge_turn import DecodingTerms, RemoteTurn
from streamer.core.link.patience import STUCK_S, VerifierProgress
from streamer.core.link.send_window import MAX_PIECES
from streamer.stages.plumbing.ports import TargetLost

if TYPE_CHECKING:
    from streamer.net.link.edge import EdgeLink

# before a turn that found no place asks again; the last one from then on
REOPEN_S = (0.25, 0.5, 1.0, 2.0, 4.0)
RATE_HZ = 16_000


class FarTarget:
    """Takes at once what it is told; `verify` waits for as long as its caller does, through any
    number of links."""

    def __init__(
        self, link: EdgeLink, channel: int, session: bytes, terms: DecodingTerms, epoch: int
    ) -> None:
        self.turn = RemoteTurn(channel, session, terms, epoch)
        self.num_bytes_up = self.num_bytes_down = 0
        self.reopen_at = -math.inf  # after a rejection: not before
        self._link = link
        self.terms = terms
        self._is_wanted = link.verifier.eager  # lazy: from the first request on
        self._waiting: dict[int, _ReplyWaiter] = {}
        self._sent: set[int] = set()  # numbers of requests that were sent, on whatever link
        # of this link: samples, where they end, when sent
        self._unheard: deque[tuple[int, int, float]] = deque()
        self._prefilled = anyio.Event()
        self._progress = VerifierProgress()
        self._num_rejected = 0  # since the last verdict
        self._is_behind = False  # a verdict was wanted before the request could be sent
        self._was_verified = False  # on this link
        self._lost: str | None = None

    @property
    def is_up(self) -> bool:
        """Whether to ask this turn: not while it has no place there, nor while it has still to
        catch up."""
        is_held_up = self._is_rejected or (self._is_behind and not self.turn.is_ready)
        return self._lost is None and not is_held_up

    @property
    def num_waiting(self) -> int:
        """Requests without a reply."""
        return len(self._waiting)

    @property
    def num_unheard(self) -> int:
        """Samples that the verifier is to hear and has not; 0 where nothing is sent yet (lazy)."""
        return (
            self.turn.num_samples - self.turn.num_prefilled
            if self._is_wanted and self._lost is None
            else 0
        )

    async def hear(self, heard: Heard) -> None:
        if heard.samples is not None and len(heard.samples):
            self._progress.began(self._link.clock())
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
        reply = self.turn.ask(request)
        if reply is not None:
            return reply
        self._is_wanted = True
        self._want()
        waiting = self._waiting[request.number] = _ReplyWaiter(self._link.clock())
        try:
            await waiting.is_over.wait()
        finally:
            self._waiting.pop(request.number, None)
            self.turn.forget(request.number)
        if waiting.reply is None:
            raise TargetLost(self._lost or self._link.lost or "the verifier gave the turn up")
        return waiting.reply

    def has_sent(self, number: int) -> bool:
        return number in self._sent

    def failed(self) -> None:
        """A verdict did not come in time. The verifier is blamed where it was asked, or makes no
        progress; a request that waits here behind the turn's own audio, or for a place there, is
        this turn's own misfortune."""
        is_unsent = bool(self._waiting) and not any(
            number in self._sent for number in self._waiting
        )
        is_moving = self._is_rejected or self._link.clock() - self._progress.moved_at < STUCK_S
        if is_unsent and is_moving and self._link.is_linked:
            self._is_behind = True
        else:
            self._link.failed(self._given_up())

    async def prefilled(self) -> None:
        """Wait until the verifier has prefilled all that was heard, for as long as
        core/link/patience.py says; a lazy one is not asked to. What it says without hearing more
        does not prolong the wait."""
        patience = self._link.verifier.patience
        since = self._link.clock()
        while self._is_wanted and self._lost is None and self._link.is_linked and self._is_hearing:
            ends_at = patience.ends_at(
                self._progress.began_at, since, self.turn.num_samples / RATE_HZ
            )
            stuck_at = max(since, self._progress.moved_at) + patience.stuck_s
            left_s = min(ends_at, stuck_at) - self._link.clock()
            if left_s <= 0:
                self._is_behind |= patience.goes_on and stuck_at <= ends_at
                return
            self._prefilled = anyio.Event()
            with anyio.move_on_after(left_s):
                await self._prefilled.wait()

    @property
    def traffic(self) -> tuple[int, int]:
        return self.num_bytes_up, self.num_bytes_down

    def close(self) -> None:
        """A second call does nothing."""
        self._forget_unheard()
        if self._was_verified:  # the link served a turn to its end
            self._was_verified = False
            self._link.redial.succeeded()
        self._link.leave(self)

    def pull(self) -> wire.Up | None:
        """What the link is to send next, but for audio."""
        return self.turn.pull(0) if self._may_send else None

    def pull_audio(self) -> wire.Up | None:
        """The next piece, where the window has room."""
        if not self._may_send or len(self._unheard) >= MAX_PIECES:
            return None
        message = self.turn.pull(self._link.window.room(sum(n for n, *_ in self._unheard)))
        if isinstance(message, wire.AudioMessage):
            num_samples = wire.num_samples_of(message)
            self._unheard.append((num_samples, message.start + num_samples, self._link.clock()))
            self._link.window.sent(num_samples)
        return message

    def sent(self, message: wire.Up, num_bytes: int) -> None:
        """It was written."""
        self.num_bytes_up += num_bytes
        if isinstance(message, wire.VerifyMessage | wire.Decode):
            self._sent.add(message.number)
            if (waiting := self._waiting.get(message.number)) is not None:
                waiting.asked_at = self._link.clock()

    def take(self, message: wire.Down) -> None:
        """What came for this turn. Raises RemoteFault."""
        if isinstance(message, wire.Rejected):
            self._rejected(message)
            return
        reply = self.turn.take(message)
        self._note_progress(message)
        self._count_heard()
        if isinstance(reply, Verdict):
            self._link.breaker.succeeded()
            self._was_verified = True
            self._num_rejected = 0
        if reply is not None and (waiting := self._waiting.get(reply.number)) is not None:
            waiting.answer(reply)
        self._prefilled.set()
        self._want()

    def attach(self) -> None:
        """There is a new link."""
        self.turn.attach()
        self._progress.attach()
        self.reopen_at = -math.inf

    def unlinked(self) -> None:
        """The link was cut."""
        self._forget_unheard()
        self._was_verified = False
        self._prefilled.set()

    def lose(self, why: str) -> None:
        """Nothing will come any more."""
        self._lost = why
        self._forget_unheard()
        self._prefilled.set()
        for waiting in self._waiting.values():
            waiting.is_over.set()

    @property
    def _is_hearing(self) -> bool:
        return self.turn.num_prefilled < self.turn.num_samples

    @property
    def _is_rejected(self) -> bool:
        return self.reopen_at > -math.inf and not self.turn.is_opened

    @property
    def _may_send(self) -> bool:
        return self._is_wanted and self._lost is None and self._link.clock() >= self.reopen_at

    def _rejected(self, message: wire.Rejected) -> None:
        if message.epoch != self.turn.epoch:
            return
        self._forget_unheard()
        reason = one_line(message.reason)
        if message.is_final:
            self.lose(f"{self._link.name} refuses: {reason}")
            return
        self._link.trouble = reason
        pause = REOPEN_S[min(self._num_rejected, len(REOPEN_S) - 1)]
        self._num_rejected += 1
        self.turn.attach()
        self.reopen_at = self._link.clock() + jittered(pause, self._link.chance())
        self._link.wake()

    def _note_progress(self, message: wire.Down) -> None:
        if (
            isinstance(message, wire.OpenedMessage | wire.HeardMessage)
            and message.epoch == self.turn.epoch
        ):
            num_heard = message.num_samples if isinstance(message, wire.HeardMessage) else 0
            self._progress.heard(num_heard, self._link.clock())

    def _count_heard(self) -> None:
        now = self._link.clock()
        while self._unheard and self._unheard[0][1] <= self.turn.num_prefilled:
            num_samples, _, sent_at = self._unheard.popleft()
            self._link.window.heard(num_samples, sent_at, now)

    def _forget_unheard(self) -> None:
        self._link.window.dropped(sum(n for n, *_ in self._unheard))
        self._unheard.clear()

    def _given_up(self) -> float:
        """When the oldest of the requests that now wait in vain was asked; infinity where there is
        none."""
        given_up = [waiting for waiting in self._waiting.values() if not waiting.is_given_up]
        for waiting in given_up:
            waiting.is_given_up = True
        return min((waiting.asked_at for waiting in given_up), default=math.inf)

    def _want(self) -> None:
        if self._is_wanted:
            self._link.wake()


class _ReplyWaiter:
    """Somebody who waits for a reply to what was asked, or sent since, at `asked_at`."""

    def __init__(self, asked_at: float) -> None:
        self.asked_at = asked_at
        self.is_given_up = False
        self.reply: Verdict | Refusal | None = None
        self.is_over = anyio.Event()

    def answer(self, reply: Verdict | Refusal) -> None:
        self.reply = reply
        self.is_over.set()
