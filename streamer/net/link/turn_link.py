"""What a turn needs of the link that it is on: six members, and no socket."""

from __future__ import annotations

from typing import Protocol

from streamer.core.link.edge_turn import RemoteTurn


class TurnLink(Protocol):
    """What a turn needs of its link (net/link/edge.py)."""

    @property
    def why_not(self) -> str | None:
        """Why no turn need wait for a verdict; None where one may come."""
        ...

    def wake(self) -> None:
        """There is something to send."""
        ...

    def verdict_came(self) -> None: ...

    def failed(self, asked_at: float) -> None:
        """A verdict asked for then is late: ask whether the verifier is there, and pause."""
        ...

    def rejected(self, reason: str) -> None:
        """The verifier has no place for this turn now."""
        ...

    def leave(self, turn: RemoteTurn, was_served: bool) -> None:
        """The turn is over. was_served: verdicts came on the present link."""
        ...
