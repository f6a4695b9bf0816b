"""One turn on the link: target.py's Target. In: what was heard, requests. Out: verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable

import anyio

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.turn_items import Closed, Heard
from streamer.core.decoding.verdict import Refusal, Verdict, VerifyRequest
from streamer.core.description import one_line
from streamer.core.link import wire
from streamer.core.link.backoff import jittered
from streamer.core.link.edge_turn import RemoteTurn
from streamer.core.link.patience import STUCK_S, VerifierProgress
from streamer.core.link.send_window import SendWindow
from streamer.core.rules.level_weights import LevelWeights
from streamer.net.link.dial import VerifierAddress
from streamer.net.link.reply_waiters import ReplyWaiters
from streamer.net.link.turn_link import TurnLink
from streamer.net.link.unheard_audio import UnheardAudio
from streamer.stages.ports import TargetLost

# Before a turn that found no place asks again; the last one from then on.
REOPEN_S = (0.25, 0.5, 1.0, 2.0, 4.0)


class RemoteTarget:
    """Takes at once what it is told; `verify` waits as its caller does, through all links."""

    def __init__(
        self,
        link: TurnLink,
        turn: RemoteTurn,
        verifier: VerifierAddress,
        clock: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        self.turn = turn
        self.num_bytes_up = self.num_bytes_down = 0
        self.reopen_at = -math.inf  # after a rejection: not before
        self._link = link
        self._verifier = verifier
        self._clock = clock
        self._chance = chance
        self._is_wanted = verifier.eager  # lazy: from the first request on
        self._waiters = ReplyWaiters()
        self._unheard: UnheardAudio | None = None  # None: there is no link
        self._moved = anyio.Event()  # the verifier has prefilled more, or will not
        self._progress = VerifierProgress()
        self._num_rejected = 0  # since the last verdict
        self._is_behind = False  # a verdict was wanted before the request could be sent
        self._was_served = False  # on this link
        self._lost: str | None = None

    @property
    def is_up(self) -> bool:
        """Whether to ask: not while it has no place there, nor while it has to catch up."""
        is_held_up = self._is_rejected or (self._is_behind and not self.turn.is_ready)
        return self._lost is None and not is_held_up

    @property
    def num_waiting(self) -> int:
        """Requests without a reply."""
        return len(self._waiters)

    @property
    def num_unheard(self) -> int:
        """Samples that the verifier is to hear and has not; 0 where nothing is sent yet (lazy)."""
        if not self._is_wanted or self._lost is not None:
            return 0
        return self.turn.num_samples - self.turn.num_prefilled

    async def hear(self, heard: Heard) -> None:
        if heard.samples is not None and len(heard.samples):
            self._progress.began(self._clock())
            self.turn.hear(heard.samples)
            self._want()

    async def finish(self, closed: Closed, weights: LevelWeights) -> None:
        self.turn.finish(weights)
        self._want()

    async def verify(self, request: VerifyRequest) -> Verdict | Refusal:
        """Raises TargetLost where the verifier has refused the turn, or is not there."""
        why_not = self._lost or self._link.why_not
        if why_not is not None:
            raise TargetLost(why_not)
        early = self.turn.ask(request)
        if early is not None:
            return early
        self._is_wanted = True
        self._want()
        try:
            reply = await self._waiters.wait(request.number, self._clock())
        finally:
            self.turn.forget(request.number)
        if isinstance(reply, str):
            raise TargetLost(reply)
        return reply

    def has_sent(self, number: int) -> bool:
        return self._waiters.has_sent(number)

    def failed(self) -> None:
        """A verdict did not come in time. The verifier is blamed where it was asked, or makes no
        progress. A request that waits here behind the turn's own audio, or for a place there, is
        this turn's own misfortune."""
        is_moving = self._is_rejected or self._clock() - self._progress.moved_at < STUCK_S
        if self._waiters.are_unsent and is_moving and self._unheard is not None:
            self._is_behind = True
        else:
            self._link.failed(self._waiters.given_up())

    async def prefilled(self) -> None:
        """Wait until the verifier has prefilled all that was heard, for as long as
        core/link/patience.py says; a lazy one is not asked to. What it says without hearing more
        does not prolong the wait."""
        patience = self._verifier.patience
        since = self._clock()
        audio_s = self.turn.num_samples / SAMPLE_RATE_HZ
        while self._unheard is not None and self.num_unheard:
            ends_at = patience.ends_at(self._progress.began_at, since, audio_s)
            stuck_at = max(since, self._progress.moved_at) + patience.stuck_s
            left_s = min(ends_at, stuck_at) - self._clock()
            if left_s <= 0:
                self._is_behind |= patience.goes_on and stuck_at <= ends_at
                return
            self._moved = anyio.Event()
            with anyio.move_on_after(left_s):
                await self._moved.wait()

    @property
    def traffic(self) -> tuple[int, int]:
        return self.num_bytes_up, self.num_bytes_down

    def close(self) -> None:
        """A second call does nothing."""
        self._drop_unheard()
        self._link.leave(self.turn, self._was_served)

    def pull(self) -> wire.Up | None:
        """What the link is to send next, but for audio."""
        return self.turn.pull(0) if self._may_send else None

    def pull_audio(self) -> wire.Up | None:
        """The next piece, where the window has room."""
        if not self._may_send or self._unheard is None:
            return None
        message = self.turn.pull(self._unheard.room)
        if isinstance(message, wire.AudioMessage):
            self._unheard.sent(message, self._clock())
        return message

    def sent(self, message: wire.Up, num_bytes: int) -> None:
        """It was written."""
        self.num_bytes_up += num_bytes
        if isinstance(message, wire.VerifyMessage | wire.Decode):
            self._waiters.sent(message.number, self._clock())

    def take(self, message: wire.Down, num_bytes: int) -> None:
        """What came for this turn. Raises RemoteFault."""
        self.num_bytes_down += num_bytes
        if isinstance(message, wire.Rejected):
            self._rejected(message)
            return
        reply = self.turn.take(message)
        self._note_progress(message)
        if isinstance(reply, Verdict):
            self._link.verdict_came()
            self._was_served = True
            self._num_rejected = 0
        if reply is not None:
            self._waiters.answer(reply)
        self._moved.set()
        self._want()

    def attach(self, window: SendWindow) -> None:
        """There is a new link."""
        self.turn.attach()
        self._progress.attach()
        self._unheard = UnheardAudio(window)
        self.reopen_at = -math.inf

    def unlinked(self) -> None:
        """The link was cut."""
        self._drop_unheard()
        self._unheard = None
        self._was_served = False
        self._moved.set()

    def lose(self, why: str) -> None:
        """Nothing will come any more."""
        self._lost = why
        self._drop_unheard()
        self._moved.set()
        self.tell(why)

    def tell(self, why: str) -> None:
        """Nothing will come for those who wait now."""
        self._waiters.tell(why)

    @property
    def _is_rejected(self) -> bool:
        return self.reopen_at > -math.inf and not self.turn.is_opened

    @property
    def _may_send(self) -> bool:
        return self._is_wanted and self._lost is None and self._clock() >= self.reopen_at

    def _rejected(self, message: wire.Rejected) -> None:
        if message.epoch != self.turn.epoch:
            return
        self._drop_unheard()
        reason = one_line(message.reason)
        if message.is_final:
            self.lose(f"{self._verifier.name} refuses: {reason}")
            return
        pause = REOPEN_S[min(self._num_rejected, len(REOPEN_S) - 1)]
        self._num_rejected += 1
        self.turn.attach()
        self.reopen_at = self._clock() + jittered(pause, self._chance())
        self._link.rejected(reason)

    def _note_progress(self, message: wire.Down) -> None:
        now = self._clock()
        if (
            isinstance(message, wire.OpenedMessage | wire.HeardMessage)
            and message.epoch == self.turn.epoch
        ):
            num_heard = message.num_samples if isinstance(message, wire.HeardMessage) else 0
            self._progress.heard(num_heard, now)
        if self._unheard is not None:
            self._unheard.heard(self.turn.num_prefilled, now)

    def _drop_unheard(self) -> None:
        if self._unheard is not None:
            self._unheard.drop()

    def _want(self) -> None:
        if self._is_wanted:
            self._link.wake()
