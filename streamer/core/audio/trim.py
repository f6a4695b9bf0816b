"""A turn's samples come in; those between its first and its last sound go out.

How long somebody waited before they spoke, or after, says nothing of how they spoke. And what is
heard begins at a sample that the sound itself names. So the same speech gives the same log-mel
frames wherever it lies in a recording. A start moved by a fraction of a frame changed 0.4 of the
seven levels on people before, and 0.1 to 0.2 with it; a second of silence around the speech 0.6,
and 0.2 with it (docs/measured.md).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import PCM16_SCALE, SAMPLE_RATE_HZ, WINDOW_SAMPLES, Samples

# A sound is what is louder than this over so many samples. Speech far below it is hardly more than
# the steps of PCM16; a room's own noise above it is heard as before.
SOUND_DBFS = -55.0
SOUND_SAMPLES = SAMPLE_RATE_HZ // 50
LEAD_SAMPLES = SAMPLE_RATE_HZ // 32  # heard before the first sound is known as one
TAIL_SAMPLES = SAMPLE_RATE_HZ // 10  # and behind the last one: speech fades
# A pause inside a turn waits until sound follows it, but no more than a window of it.
MAX_PAUSE_SAMPLES = WINDOW_SAMPLES
KEPT_SAMPLES = WINDOW_SAMPLES  # of a turn without any sound, the last 2 s are heard
NOTHING: Samples = np.zeros(0, np.float32)
_ENOUGH = int(SOUND_SAMPLES * (float(PCM16_SCALE) * 10 ** (SOUND_DBFS / 20)) ** 2)


class Trim:
    """`push` a turn's samples [n], multiples of 1 / 32768, cut anywhere; `finish` it. What both
    return, joined, does not depend on the cut. Bounded: it holds at most 2 s."""

    def __init__(self) -> None:
        self._held = NOTHING  # not given yet
        self._has_begun = False
        self._tail = 0  # samples that may still be given without a sound among them
        self._squares = np.zeros(SOUND_SAMPLES - 1, np.int64)  # of the samples before the next

    def push(self, samples: Samples) -> Samples:
        """The samples that are heard for certain now."""
        sounds = self._sounds(samples)
        first_new = len(self._held)
        self._held = np.concatenate([self._held, samples])
        if not self._has_begun:
            if not len(sounds):
                self._held = self._held[-KEPT_SAMPLES:]
                return NOTHING
            self._has_begun = True
            skipped = max(0, first_new + int(sounds[0]) - LEAD_SAMPLES)
            self._held = self._held[skipped:]
            first_new -= skipped
        if len(sounds):
            return self._give(first_new + int(sounds[-1]) + 1, TAIL_SAMPLES)
        return self._give(0, self._tail)

    def finish(self) -> Samples:
        """The turn is over: what is left to hear, which is nothing where there was a sound."""
        return NOTHING if self._has_begun else self._held

    def _give(self, end: int, tail: int) -> Samples:
        """The held samples before `end`, `tail` more of those behind it, and what is too much to
        hold."""
        wanted = min(len(self._held), end + tail)
        self._tail = end + tail - wanted
        wanted = max(wanted, len(self._held) - MAX_PAUSE_SAMPLES)
        given = self._held[:wanted]
        self._held = self._held[wanted:]
        return given

    def _sounds(self, samples: Samples) -> NDArray[np.intp]:
        """Which of them end a stretch that is loud enough. Whole numbers: no rounding, so no cut
        decides. One at full scale is a sound: what is beyond it needs no square, which would not
        fit."""
        in_range = np.clip(samples * PCM16_SCALE, -PCM16_SCALE, PCM16_SCALE)
        whole = np.rint(in_range).astype(np.int64)
        squares = np.concatenate([self._squares, whole * whole])
        self._squares = squares[-(SOUND_SAMPLES - 1) :]
        sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(squares)])
        return np.flatnonzero(sums[SOUND_SAMPLES:] - sums[:-SOUND_SAMPLES] >= _ENOUGH)


def trimmed(samples: Samples) -> Samples:
    """What is heard of a whole turn [n]."""
    trim = Trim()
    return np.concatenate([trim.push(samples), trim.finish()])
