"""Frames of several channels in, one channel out, the same for every way of cutting.

Channels share one gain by their energy, as in an automatic microphone mixer (Dugan, 1975): two
equal ones are averaged, and one that is silent takes nothing from the others. Where channels cancel
each other, as with two wires swapped, the one with most energy is heard alone. The page and the
client follow the same rule.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import Samples

BLOCKS_PER_S = 20
KEPT = 0.8  # of the energies, from block to block: a memory of a quarter of a second
CANCELS = 0.05  # of the channels' energies: less is left of their sum; of strangers all is left
DEAD = 1e-4  # of the strongest channel's energy in the whole recording (-40 dB)
Doubles = NDArray[np.float64]


class Mixer:
    """Mixes one recording; holds under one block of 50 ms. `told` says what a listener may miss."""

    def __init__(self, channels: int, sample_rate: int) -> None:
        self._size = max(1, sample_rate // BLOCKS_PER_S)
        self._held = np.zeros((0, channels), np.float32)
        self._energies = np.zeros(channels)  # of the last blocks
        self._whole = np.zeros(channels)  # of all
        self._summed = 0.0  # energy of the channels' sum in the last blocks
        self._shares: Doubles | None = None  # of the last block that held sound
        self._cancelled = False

    def push(self, frames: Samples) -> Samples:
        """Take frames [n, channels]; return the samples that are known now [m]."""
        if frames.shape[1] == 1:
            return frames[:, 0].copy()
        held = np.concatenate([self._held, frames])
        num = len(held) // self._size * self._size
        self._held = held[num:].copy()
        blocks = held[:num].reshape(-1, self._size, held.shape[1])
        return np.concatenate([np.zeros(0, np.float32), *map(self._mix, blocks)])

    def finish(self) -> Samples:
        """The samples that were held back [m]."""
        rest, self._held = self._held, self._held[:0]
        return self._mix(rest) if len(rest) else np.zeros(0, np.float32)

    def told(self) -> str | None:
        """One line where not every channel is heard."""
        strongest = int(self._whole.argmax())
        if self._cancelled:
            return f"its channels cancel each other; channel {strongest} alone was heard"
        dead = np.flatnonzero(self._whole < DEAD * self._whole[strongest])
        if not len(dead):
            return None
        names = ", ".join(map(str, dead[:8])) + (", ..." if len(dead) > 8 else "")
        return f"channel{'s' * (len(dead) > 1)} {names} hold{'s' * (len(dead) == 1)} no sound"

    def _mix(self, block: Samples) -> Samples:
        """One block [n, channels], with shares that move from the last block's to its own."""
        shares = self._shares_of(block)
        before = shares if self._shares is None else self._shares
        if shares is None or before is None:
            return block[:, 0] * np.float32(0)
        self._shares = shares
        way = np.linspace(0, 1, len(block), dtype=np.float32)[:, np.newaxis]
        return _sum(block, before.astype(np.float32) + way * (shares - before).astype(np.float32))

    def _shares_of(self, block: Samples) -> Doubles | None:
        """None as long as every channel is silent."""
        exact = block.astype(np.float64)
        energies = np.square(exact).sum(0)
        self._energies = KEPT * self._energies + energies
        self._whole = self._whole + energies
        self._summed = KEPT * self._summed + float(np.square(exact.sum(1)).sum())
        total = float(self._energies.sum())
        if total == 0:
            return self._shares
        if self._summed < CANCELS * total:
            self._cancelled = True
            strongest: Doubles = np.eye(len(energies))[self._whole.argmax()]
            return strongest
        return self._energies / total


def _sum(block: Samples, gains: Samples) -> Samples:
    """Channel by channel: a library's sum may pick its order by the shape."""
    mono = gains[:, 0] * block[:, 0]
    for channel in range(1, block.shape[1]):
        mono = mono + gains[:, channel] * block[:, channel]
    return mono
