"""Removes 0 Hz from samples at 16 kHz, the same for every way of cutting.

A microphone's constant offset is no sound. But a level, an SNR, a pause and voice activity are all
changed by it: an offset of 0.01 hides the quiet of a room.
"""

from __future__ import annotations

import numpy as np

from streamer.core.audio.pcm import PCM16_SCALE, Samples

MEAN_SAMPLES = 4096  # 256 ms: the lowest voice, 60 Hz, changes by 2 % at most


class OffsetFilter:
    """Each sample less the mean of the last 256 ms, or of all so far while they are fewer.

    Sums are of whole steps of PCM16, so they are exact. What comes out is rounded to such steps.
    """

    def __init__(self) -> None:
        self._past = np.zeros(0, np.int64)  # at most MEAN_SAMPLES
        self._total = 0  # of _past

    def push(self, samples: Samples) -> Samples:
        """Take samples [n], full scale 1.0; return as many, multiples of 1 / 32768."""
        whole = np.rint(samples * PCM16_SCALE).astype(np.int64)
        known = np.concatenate([self._past, whole])
        sums = self._total + np.cumsum(whole)
        num_left = len(known) - MEAN_SAMPLES  # that have left the window by the end
        if num_left > 0:
            sums[len(whole) - num_left :] -= np.cumsum(known[:num_left])
        counts = np.minimum(len(self._past) + 1 + np.arange(len(whole)), MEAN_SAMPLES)
        if len(whole):
            self._total = int(sums[-1])
            self._past = known[-MEAN_SAMPLES:]
        means = (2 * sums + counts) // (2 * counts)
        found: Samples = (whole - means).astype(np.float32) / PCM16_SCALE
        return found
