"""Two channels of which one is the other upside down: mixed, nothing is left. In: blocks of a
recording. Out: the same blocks, and which channel to hear alone.

A cable with two wires swapped does it, and some phones' recorders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

from streamer.audio.source import Block

LOOK_S = 10.0  # of sound; digital silence before it does not count
MOST_HELD = 1 << 22  # samples of both channels, so 16 MB: what silence may lead to
CANCELS = 0.02  # of the louder channel's energy: less than that is left of a mix (-17 dB)


def uncancelled(blocks: Iterable[Block], sample_rate: int) -> tuple[int | None, Iterator[Block]]:
    """(the louder channel where a mix would cancel, else None; all blocks again). Blocks are
    [n, 2]. It reads as far as it looks."""
    rest = iter(blocks)
    held: list[Block] = []
    num_held = num_frames = 0
    energies = np.zeros(3)  # of each channel, of their mix
    for block in rest:
        held.append(block)
        num_held += block.size
        if block.any():
            num_frames += len(block)
            both = np.column_stack([block, block.mean(axis=1)]).astype(np.float64)
            energies += np.square(both).sum(axis=0)
        if num_frames >= LOOK_S * sample_rate or num_held >= MOST_HELD:
            break
    loudest = int(np.argmax(energies[:2]))
    is_cancelled = energies[2] < CANCELS * energies[loudest]  # false for NaN, which is told later
    return loudest if is_cancelled else None, chain(held, rest)
