"""The base of opened recordings: blocks of samples, warnings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Block = NDArray[np.float32]  # [n, channels], full scale 1.0
MOST = 4.0  # 12 dB over full scale: beyond it, the samples are no audio of full scale 1.0
ROUNDING = 1.0 + 1 / 32768


class AudioError(Exception):
    """A recording that cannot be heard: one line with its path, the cause, and a way out if any."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path if path.isprintable() and path else ascii(path)}: {reason}")
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[type[AudioError], tuple[str, str]]:
        return type(self), (self.path, self.reason)  # pickled as it was made


class Audio(ABC):
    """An open recording: iterate over its blocks once, inside a `with`, which closes it whatever
    happens.

    num_frames: as far as header and size tell; is_guess where nothing in the file says it.
    """

    def __init__(
        self, path: str, sample_rate: int, channels: int, num_frames: int, is_guess: bool = False
    ) -> None:
        self.path = path
        self.sample_rate = sample_rate
        self.channels = channels
        self.num_frames = num_frames
        self.is_guess = is_guess
        self.cut: str | None = None  # one line, where the recording ends early
        self.mixed: str | None = None  # one line, where not every channel is heard
        self._num_over = 0  # samples beyond full scale
        self._peak = 0.0

    @property
    def duration_s(self) -> float:
        return self.num_frames / self.sample_rate

    @property
    def warning(self) -> str | None:
        """One line about the recording, or None. Ask after the last block."""
        over = (
            f"{self._num_over} samples beyond full scale were clipped, the loudest {self._peak:.2f}"
        )
        told = (self.cut, over if self._num_over else None, self.mixed)
        return "; ".join(filter(None, told)) or None

    def __enter__(self) -> Audio:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Gives back what it holds; a second call does nothing."""

    @abstractmethod
    def __iter__(self) -> Iterator[Block]:
        """Blocks [n, channels] float32, full scale 1.0. Raises AudioError where none can be had."""

    def _in_range(self, block: Block, num_before: int) -> Block:
        """A block of floats with what is a little over full scale clipped.

        Raises AudioError far beyond it: there the samples are integers, and the models would
        describe noise. The chunker refuses NaN and infinity.
        """
        peak = float(max(block.max(), -block.min()))
        if not ROUNDING < peak < np.inf:
            return block
        if peak > MOST:
            row = int(np.argmax(np.abs(block).max(axis=1) > MOST))
            at = f"{(num_before + row) / self.sample_rate:.2f} s"
            told = f"its samples reach {np.abs(block[row]).max():g} at {at}, but full scale is 1.0"
            ways = "divide them by 32768 if they are int16's, else by the loudest"
            raise AudioError(self.path, f"{told}; {ways}")
        self._num_over += int((np.abs(block) > ROUNDING).sum())
        self._peak = max(self._peak, peak)
        return np.clip(block, -1.0, 1.0)
