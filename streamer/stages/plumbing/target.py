"""Who verifies, as Protocols: a turn's target, the cloud that it is on, a verifier's judge."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Protocol

from streamer.core.audio.turn_items import Closed, Heard
from streamer.core.decoding.verdict import Refusal, Verdict, VerifyRequest
from streamer.core.rules.clauses import Ranges
from streamer.core.rules.settings import Rules


class Target(Protocol):
    """One turn on the model that verifies: in this process (stages/plumbing/local_target.py), or
    elsewhere (net/link/edge.py)."""

    async def hear(self, heard: Heard) -> None:
        """Prefill what was heard; one that is elsewhere takes it and returns at once."""
        ...

    async def finish(self, closed: Closed, ranges: Ranges) -> None:
        """The turn is over. ranges: of the levels that its sentence may say."""
        ...

    async def prefilled(self) -> None:
        """Wait until all that was heard is prefilled; not for long where the target is away."""
        ...

    async def verify(self, request: VerifyRequest) -> Verdict | Refusal:
        """Judge a block. Raises TargetLost where there is no sense in waiting."""
        ...

    @property
    def is_up(self) -> bool:
        """Whether it is worth asking for this turn now, where its Cloud is up."""
        ...

    def has_sent(self, number: int) -> bool:
        """Whether the request of this number has left for the target."""
        ...

    def failed(self) -> None:
        """A verdict did not come in time."""
        ...

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes up and down, on the way to a target elsewhere."""
        ...

    def close(self) -> None:
        """Give the KV slot back."""
        ...


class Judge(Protocol):
    """One turn of an edge elsewhere, on this verifier's model; one call at a time."""

    async def hear(self, samples: Any) -> None:
        """Samples [n] float32 at 16 kHz."""
        ...

    async def finish(self) -> None: ...

    def judge(
        self, request: VerifyRequest, runs_on: bool
    ) -> AsyncGenerator[Verdict | Refusal, None]:
        """The reply; with `runs_on` also those to the empty drafts that would follow."""
        ...

    def close(self) -> None:
        """Give the KV slot back."""
        ...


class TargetLost(RuntimeError):
    """The target will not answer this turn any more; one line says why, and the way out."""


class Cloud(Protocol):
    """Where turns are verified. is_up: worth asking now. is_remote: a round trip away."""

    @property
    def is_up(self) -> bool: ...
    @property
    def is_remote(self) -> bool: ...
    @property
    def is_busy(self) -> bool:
        """Whether it has other turns in hand: then it hears an end only when it is asked."""
        ...

    @property
    def name(self) -> str:
        """For error messages."""
        ...

    @property
    def model(self) -> str:
        """The fingerprint that a verifier elsewhere told last; "" for one in this process."""
        ...

    @property
    def is_linked(self) -> bool:
        """Whether it can be reached now."""
        ...

    @property
    def trouble(self) -> str:
        """Why it may be away, for error messages."""
        ...

    @property
    def unheard_s(self) -> float:
        """Seconds of audio that turns wait for it to hear: on their way, where it is elsewhere."""
        ...

    def listen(self, rules: Rules) -> Target:
        """A turn begins, which is verified by these rules."""
        ...
