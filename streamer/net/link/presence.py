"""What is known of the verifier. In: what its turns meet. Out: whether to ask it, or why not."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from streamer.core.description import one_line
from streamer.core.link import wire
from streamer.core.link.backoff import Breaker
from streamer.core.link.plausible import RemoteFault
from streamer.net.link.dial_errors import is_final, is_nobody, why
from streamer.net.service.notices import Notices

MODEL_CHARACTERS = 16  # of a fingerprint, in a notice
MAX_TRIES = 4  # that find nobody; then nobody waits for one more
NOT_YET = "not connected yet"
SLOW = "it is slow"


class Presence:
    """One verifier's. `model`: the fingerprint that the latest turn was told; `on_model` is told
    the first one. `settled`: linked for the first time, or known to be absent."""

    def __init__(
        self, name: str, clock: Callable[[], float], on_model: Callable[[str], None]
    ) -> None:
        self.name = name
        self.breaker = Breaker()
        self.num_links = 0
        self.rtt_s: float | None = None  # of the latest ping
        self.lost: str | None = None  # it refuses us, as far as one can tell for good
        self.trouble = NOT_YET  # why there is no link, or no verdict
        self.model = ""
        self.settled = anyio.Event()
        self._clock = clock
        self._on_model = on_model
        self._num_tries = 0  # in a row that found nobody
        self._notices = Notices()
        self._swaps = Notices()

    @property
    def is_up(self) -> bool:
        """Whether it is worth asking now."""
        return self.breaker.is_closed(self._clock())

    @property
    def why_not(self) -> str | None:
        """Why there is no sense in waiting for a verdict; None where one may come. A verifier that
        was there may come back, so the first turn that misses it waits for as long as it may."""
        if self.lost is not None:
            return self.lost
        is_missed = self.num_links == 0 or self.breaker.num_failures > 0
        if self._num_tries < MAX_TRIES or not is_missed:
            return None
        return f"{self.name} is not there ({self.trouble})"

    def linked(self) -> None:
        """There is a link; whether it answers will be seen."""
        self.lost = None
        self.num_links += 1
        self._num_tries = 0

    def answered(self, asked_at: float) -> None:
        """It answered a ping that was sent then."""
        self.rtt_s = self._clock() - asked_at
        self.breaker.answered(asked_at)
        self.settled.set()
        if self.trouble == NOT_YET:
            self.trouble = SLOW
        self._notices.state(True, f"{self.name} is there again")

    def unlinked(self, error: Exception) -> None:
        """There is no link, or none any more."""
        self.breaker.unlinked()
        self.trouble = why(error)
        self._notices.state(False, f"{self.name} is not there ({self.trouble}); it is tried again")
        if isinstance(error, RemoteFault | wire.WireError):
            self.breaker.failed(self._clock())
        if is_nobody(error):
            self._num_tries += 1
        if is_final(error, was_linked=self.num_links > 0):
            self.lost = f"{self.name} refuses: {self.trouble}"
        if self.why_not is not None:
            self.settled.set()

    def verdict_came(self) -> None:
        """Earlier trouble is over."""
        self.breaker.succeeded()
        self.trouble = SLOW

    def told_model(self, model: str) -> None:
        """Within a turn the model cannot change (core/link/edge_turn.py). Between turns it may, and
        whoever runs this edge is told."""
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
