"""A turn's audio on its way on one link. In: what was sent, and what was heard. Out: room."""

from __future__ import annotations

from collections import deque

from streamer.core.link import packing, wire
from streamer.core.link.send_window import MAX_PIECES, SendWindow


class UnheardAudio:
    """window: of the link, for all of its turns."""

    def __init__(self, window: SendWindow) -> None:
        self._window = window
        self._pieces: deque[tuple[int, int, float]] = deque()  # samples, where they end, when sent

    @property
    def room(self) -> int:
        """Samples that may be sent now."""
        if len(self._pieces) >= MAX_PIECES:
            return 0
        return self._window.room(self._num_samples)

    def sent(self, message: wire.AudioMessage, now: float) -> None:
        num_samples = packing.num_samples_of(message)
        self._pieces.append((num_samples, message.start + num_samples, now))
        self._window.sent(num_samples)

    def heard(self, num_prefilled: int, now: float) -> None:
        """The verifier has prefilled so much of the turn."""
        while self._pieces and self._pieces[0][1] <= num_prefilled:
            num_samples, _, sent_at = self._pieces.popleft()
            self._window.heard(num_samples, sent_at, now)

    def drop(self) -> None:
        """Nothing more will be heard of it."""
        self._window.dropped(self._num_samples)
        self._pieces.clear()

    @property
    def _num_samples(self) -> int:
        return sum(num_samples for num_samples, *_ in self._pieces)
