"""Recordings in memory and in folders, and the base of all that are opened: blocks, warnings."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import PCM16_SCALE

Block = NDArray[np.float32]  # [n, channels], full scale 1.0
MOST = 4.0  # 12 dB over full scale: beyond it, the samples are no audio of full scale 1.0
ROUNDING = 1.0 + 1 / 32768
BLOCK_FRAMES = 8192
SUFFIXES = (
    *(".wav", ".w64", ".rf64", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff", ".aifc"),
    *(".au", ".snd", ".caf", ".m4a", ".m4b", ".mp4", ".mov", ".webm", ".mkv", ".mka", ".aac"),
    *(".wma", ".amr", ".3gp"),
)


class AudioError(Exception):
    """A recording that cannot be heard: one line with its path, the cause, and a way out if any."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path if path.isprintable() and path else ascii(path)}: {reason}")
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[type[AudioError], tuple[str, str]]:
        return type(self), (self.path, self.reason)  # pickled as it was made


class Audio(AbstractContextManager["Audio", None]):
    """An open recording: iterate over its blocks once, inside a `with`, which closes it whatever
    happens. duration_s: as far as its head tells, perhaps a guess, and 0 where it is unknown.
    """

    cut: str | None = None  # one line, where the recording ends early

    def __init__(self, path: str, sample_rate: int, channels: int, duration_s: float) -> None:
        self.path = path
        self.sample_rate = sample_rate
        self.channels = channels
        self.duration_s = duration_s
        self.mixed: str | None = None  # one line, where not every channel is heard
        self._num_over = 0  # samples beyond full scale
        self._peak = 0.0

    @property
    def warning(self) -> str | None:
        """One line about the recording, or None. Ask after the last block."""
        over = f"{self._num_over} samples beyond full scale were clipped"
        over += f"; divide all by the loudest, {self._peak:.2f}, to keep them"
        told = (self.cut, over if self._num_over else None, self.mixed)
        return "; ".join(filter(None, told)) or None

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives back what it holds; a second call does nothing."""

    @abstractmethod
    def __iter__(self) -> Iterator[Block]:
        """Blocks [n, channels] float32, full scale 1.0. Raises AudioError where none can be had."""

    def _in_range(self, block: Block, num_before: int) -> Block:
        """A block of floats, clipped at full scale. Raises AudioError far beyond it: such samples
        are integers, and the models would describe noise. The chunker refuses NaN and infinity."""
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


class AudioArray(Audio):
    """Samples [n] or [n, channels], float32 or float64 of full scale 1.0, or int16; at sample_rate
    Hz. Read while they are described, and not copied.

    Raises TypeError and ValueError for anything else.
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
        rate = int(sample_rate)
        super().__init__("samples", rate, self._samples.shape[1], len(samples) / max(rate, 1))

    def __iter__(self) -> Iterator[Block]:
        for at in range(0, len(self._samples), BLOCK_FRAMES):
            block = self._samples[at : at + BLOCK_FRAMES]
            samples: Block = block.astype(np.float32)
            is_int = block.dtype.kind == "i"  # of either byte order
            yield samples / PCM16_SCALE if is_int else self._in_range(samples, at)


def recordings_in(path: str) -> list[str]:
    """`path` itself unless it is a directory; else the recordings in it and below, sorted.

    Names that begin with a dot are left out, and pipes and devices, which might never end. A
    directory without a recording stays, and is refused when it is opened.
    """
    if not os.path.isdir(path):
        return [path]
    found = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = os.path.join(folder, name)
            is_named = Path(name).suffix.lower() in SUFFIXES and not name.startswith(".")
            if is_named and (os.path.isfile(file) or not os.path.exists(file)):
                found.append(file)
    return found or [path]
