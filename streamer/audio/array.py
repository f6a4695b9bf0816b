"""Samples that are in memory already come in; blocks go out as those of a file do (file.py)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from streamer.audio.source import Audio, Block
from streamer.core.audio.pcm import PCM16_SCALE

NAME = "samples"  # what errors and the Description call it
BLOCK_FRAMES = 8192


class AudioArray(Audio):
    """Samples [n] or [n, channels], float32 or float64 of full scale 1.0, or int16; at sample_rate
    Hz.

    Raises TypeError and ValueError for anything else. The array is read while it is described, and
    not copied.
    """

    def __init__(self, samples: NDArray[np.float32] | NDArray[np.int16], sample_rate: int) -> None:
        kinds = (np.float32, np.float64, np.int16)
        if not isinstance(samples, np.ndarray) or samples.dtype.type not in kinds:
            kind = getattr(samples, "dtype", type(samples).__name__)
            ways = "give a numpy array of float32 (full scale 1.0) or int16"
            raise TypeError(f"samples are {kind}; {ways}")
        told = f"samples have the shape {list(samples.shape)}"
        if samples.ndim not in (1, 2) or not samples.size:
            raise ValueError(f"{told}; give [n] or [n, channels], n > 0")
        if samples.ndim == 2 and samples.shape[1] > samples.shape[0]:
            raise ValueError(f"{told}; give [n, channels], .T turns them")
        if not (isinstance(sample_rate, int | float | np.number) and np.isfinite(sample_rate)):
            raise TypeError(f"the sample rate is {sample_rate!r}; give Hz as a number")
        self._samples = samples.reshape(len(samples), -1)
        super().__init__(NAME, int(sample_rate), self._samples.shape[1], len(samples))

    def close(self) -> None:
        """It holds nothing that was opened."""

    def __iter__(self) -> Iterator[Block]:
        for at in range(0, self.num_frames, BLOCK_FRAMES):
            block = self._samples[at : at + BLOCK_FRAMES]
            samples: Block = block.astype(np.float32)
            is_int = block.dtype.kind == "i"  # of either byte order
            yield samples / PCM16_SCALE if is_int else self._in_range(samples, at)
