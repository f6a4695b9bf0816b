"""Log-mel windows come in as they are encoded; which the growing maximum made stale comes out.

The features are clamped 80 dB below the maximum of the WHOLE clip, which is unknown while it is
arriving. So each window is delivered (encoded and prefilled) under the maximum so far, and again if
a later, higher one changes it: (max(raw, m - 8) + 4) / 4 differs under m' > m if and only if
min(raw) < m' - 8. Pure bookkeeping; times are in samples at 16 kHz of the clip, never a clock.
"""

from dataclasses import dataclass

import numpy as np

from streamer.core.audio.pcm import WINDOW_SAMPLES
from streamer.model.audio.mel import CLAMP, MelWindow

# 100 ms. Measured 2026-11 on 20 espeak-ng clips of 3-45 s: 23 % of the windows are encoded
# again, all in the background; nothing was left to do after the last sample with 0-400 ms here,
# one clip in 20 with 1 s.
STABLE_SAMPLES = 1_600
# After k windows were encoded again, the next redo waits for k seconds of audio: the background
# never does more than twice the work of encoding once. On a 60 s fade-in of noise, which rises
# in every block, it encodes 17 windows again instead of 551 (and 23 at the end either way); on
# the clips above it changes nothing.
REST_SAMPLES = WINDOW_SAMPLES // 2
# 300 s, where the stock extractor cuts, and one for the silence around them (core/audio/trim.py);
# a raw window is 102 kB, so at most 15 MB
MAX_WINDOWS = 151


@dataclass(frozen=True)
class Redo:
    """A window to prefill again; where not `changed`, its old embeddings still hold."""

    window: MelWindow
    changed: bool


class WindowLedger:
    """What each window of one clip was delivered with. It keeps the raw windows (at most
    `max_windows`).

    The caller tells the log-mel's running maximum (`observe`), asks `due` now and then, and at the
    end `finish`. Given an index, it rolls the KV back to that window's start and prefills
    `redo(index)` again.
    """

    def __init__(self, max_windows: int = MAX_WINDOWS) -> None:
        self.maximum = -np.inf
        self.num_delivered = 0  # windows encoded for the first time
        self.num_reencoded = 0  # windows encoded again because their features changed
        self._max_windows = max_windows
        self._windows: list[MelWindow] = []
        self._floors: list[np.float32] = []  # per window, the clamp it was last delivered with
        self._risen_at = 0
        self._now = 0
        self._resting_until = 0

    def observe(self, maximum: float, now_samples: int) -> None:
        """Tells the running maximum over all frames known at `now_samples`; it never falls."""
        if maximum > self.maximum:
            self.maximum = maximum
            self._risen_at = now_samples

    def clip_max(self, window: MelWindow) -> float:
        """The maximum to encode a provisional window with, which changes nothing."""
        return max(self.maximum, window.maximum)

    def deliver(self, window: MelWindow) -> float:
        """Records that the next window is encoded now; returns the clip maximum to take its
        features with.

        Raises ValueError for a window out of turn or beyond `max_windows`.
        """
        if window.index != len(self._windows):
            raise ValueError(f"window {window.index} delivered in place of {len(self._windows)}")
        if window.index >= self._max_windows:
            raise ValueError(f"the clip is longer than {self._max_windows} windows")
        self.observe(window.maximum, window.end_samples)
        self._windows.append(window)
        self._floors.append(_floor(self.maximum))
        self.num_delivered += 1
        return self.maximum

    def stale(self) -> int | None:
        """The first window whose features would differ under the present maximum, or None."""
        return next((i for i in range(len(self._windows)) if self._is_stale(i)), None)

    def due(self, now_samples: int) -> int | None:
        """`stale`, once the maximum was stable for 100 ms: a rise has several steps, one redo."""
        self._now = now_samples
        if now_samples - self._risen_at < STABLE_SAMPLES or now_samples < self._resting_until:
            return None
        return self.stale()

    def finish(self, maximum: float) -> int | None:
        """`stale` under the clip's own maximum: to be redone before the turn is answered."""
        self.observe(maximum, self._risen_at)
        return self.stale()

    def redo(self, from_index: int) -> list[Redo]:
        """Takes all windows from `from_index` on as delivered under the present maximum.

        The caller must now prefill each of them again, in order, with features under `maximum`.
        """
        redos = [
            Redo(self._windows[i], self._is_stale(i)) for i in range(from_index, len(self._windows))
        ]
        self._floors[from_index:] = [_floor(self.maximum)] * len(redos)
        num_changed = sum(redo.changed for redo in redos)
        self.num_reencoded += num_changed
        self._resting_until = self._now + num_changed * REST_SAMPLES
        return redos

    def _is_stale(self, index: int) -> bool:
        floor = _floor(self.maximum)
        return bool(floor > self._floors[index] and self._windows[index].minimum < floor)


def _floor(maximum: float) -> np.float32:
    """The clamp in float32, as `Window.features` computes it."""
    return np.float32(maximum) - np.float32(CLAMP)
