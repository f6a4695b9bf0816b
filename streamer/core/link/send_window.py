"""How much audio may be on its way and unheard. In: what was sent and heard, when. Out: room.

One window for all turns of a link, for they share its queue: a request of one waits behind the
audio of all. It grows while audio is heard soon after it was sent, and halves where it waits longer
than TARGET_S beyond the best this link does (LEDBAT's rule, RFC 6817): so what lies in the network
and at a slow verifier is about TARGET_S of its work, and never more than MAX_SAMPLES, and a piece
for each further turn.
"""

from __future__ import annotations

import math

from streamer.core.audio.pcm import LIVE_SAMPLES, SAMPLE_RATE_HZ

# of one Audio at most: half a second; a turn that has nothing unheard may always send one
PIECE_SAMPLES = SAMPLE_RATE_HZ // 2
START_SAMPLES = 2 * SAMPLE_RATE_HZ
MAX_SAMPLES = 8 * SAMPLE_RATE_HZ  # 8 s: 256 kB as PCM16
# of one turn, unheard: fewer than a verifier lets wait before it stops reading the link
MAX_PIECES = 16
LEAST_SAMPLES = LIVE_SAMPLES  # what is left of the window is not filled with crumbs
TARGET_S = 0.25
_DRIFT = 1.001  # of the best, with each piece: routes change


class SendWindow:
    """Of one link, from its beginning. Times are seconds."""

    def __init__(self) -> None:
        self.size = START_SAMPLES
        self.num_unheard = 0  # samples of all turns
        self._best_s = math.inf
        self._halved_at = -1.0

    def room(self, num_own: int) -> int:
        """Samples that a turn of which `num_own` are unheard may send at once."""
        if num_own == 0:
            return PIECE_SAMPLES
        left = self.size - self.num_unheard
        return min(PIECE_SAMPLES, left) if left >= LEAST_SAMPLES else 0

    def sent(self, num_samples: int) -> None:
        self.num_unheard += num_samples

    def heard(self, num_samples: int, sent_at: float, now: float) -> None:
        """The verifier has prefilled them."""
        self.num_unheard -= num_samples
        waited = now - sent_at
        self._best_s = min(waited, self._best_s * _DRIFT)
        if waited - self._best_s <= TARGET_S:
            step = num_samples if self._halved_at < 0 else num_samples * PIECE_SAMPLES // self.size
            # doubles at first, later by a piece each round trip
            self.size = min(MAX_SAMPLES, self.size + step)
        elif sent_at >= self._halved_at:  # once for what was sent with the same window
            self.size = max(PIECE_SAMPLES, self.size // 2)
            self._halved_at = now

    def dropped(self, num_samples: int) -> None:
        """Their turn is over, or rejected: nothing will be heard of them."""
        self.num_unheard -= num_samples
