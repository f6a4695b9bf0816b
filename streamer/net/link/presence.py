"""Whether a verifier elsewhere is there, and if not, why."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from streamer.core.description import one_line
from streamer.core.link import wire
from streamer.core.link.backoff import Breaker
from streamer.core.link.plausible import RemoteFault
from streamer.net.link.dial import is_absent, is_final, why
from streamer.net.service.notices import Notices

MODEL_CHARACTERS = 16  # of a fingerprint, in a notice
MAX_TRIES = 4  # in vain, in a row; from then on no turn waits
NOT_YET = "not connected yet"
SLOW = "it is slow"


class Presence:
    """The state of one verifier, from what its connections meet.

    on_model: called with the fingerprint of the first verifier's model.
    """

    def __init__(
        self, name: str, clock: Callable[[], float], on_model: Callable[[str], None]
    ) -> None:
        self.name = name
        self.breaker = Breaker()
        # there is a connection, or was until a moment ago
        self.is_linked = False
        # there was one, now or earlier
        self.was_linked = False
        # round trip of the latest ping
        self.rtt_s: float | None = None
        # why the verifier refuses this edge, as it seems for good
        self.lost: str | None = None
        # why there is no connection, or no verdict
        self.trouble = NOT_YET
        # fingerprint of the model that served the latest turn
        self.model = ""
        # set when the verifier has answered for the first time, or is known to be absent
        self.settled = anyio.Event()
        self._clock = clock
        self._on_model = on_model
        self._num_tries = 0  # in vain, in a row
        self._notices = Notices()
        self._swaps = Notices()

    @property
    def is_up(self) -> bool:
        """Whether asking is worth it now."""
        return self.breaker.is_closed(self._clock())

    @property
    def why_not(self) -> str | None:
        """Why waiting for a verdict is useless; None where one may come.

        A verifier that was there may come back, so the first turn that misses it waits for its
        whole budget.
        """
        if self.lost is not None:
            return self.lost
        is_missed = not self.was_linked or self.breaker.num_failures > 0
        if self._num_tries < MAX_TRIES or not is_missed:
            return None
        return f"{self.name} is not there ({self.trouble})"

    def linked(self) -> None:
        """A connection was made; a ping will show whether the verifier answers."""
        self.lost = None
        self.is_linked = self.was_linked = True
        self._num_tries = 0

    def answered(self, asked_at: float) -> None:
        """The verifier answered a ping that was sent at `asked_at`."""
        self.rtt_s = self._clock() - asked_at
        self.breaker.answered(asked_at)
        self.settled.set()
        if self.trouble == NOT_YET:
            self.trouble = SLOW
        self._notices.state(True, f"{self.name} is there again")

    def unlinked(self, error: Exception) -> None:
        """There is no connection, or it ended by `error`."""
        self.is_linked = False
        self.breaker.unlinked()
        self.trouble = why(error)
        self._notices.state(False, f"{self.name} is not there ({self.trouble}); it is tried again")
        if isinstance(error, RemoteFault | wire.WireError):
            self.breaker.failed(self._clock())
        if is_absent(error):
            self._num_tries += 1
        if is_final(error, self.was_linked):
            self.lost = f"{self.name} refuses: {self.trouble}"
        if self.why_not is not None:
            self.settled.set()

    def verdict_came(self) -> None:
        """A verdict came: earlier trouble is over."""
        self.breaker.succeeded()
        self.trouble = SLOW

    def told_model(self, model: str) -> None:
        """A turn was opened by this model. Log where it differs from that of earlier turns; within
        a turn it cannot change (core/link/edge_turn.py)."""
        model = one_line(model)[:MODEL_CHARACTERS]
        if model in ("", self.model):
            return
        was = self.model
        self.model = model
        if not was:
            self._on_model(model)
            return
        told = f"{self.name} has another model than before: {model}, it was {was}"
        self._swaps.event(f"{told}; sentences may differ")
