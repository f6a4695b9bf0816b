"""Samples at 16 kHz come in; 2 s windows of log-mel [128, n_frames] go out, the same whatever the
cut (mel_frames.py)."""

import copy
import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import WINDOW_SAMPLES
from streamer.model.audio.mel_frames import (
    BLOCK_FRAMES,
    FFT_SAMPLES,
    HOP_SAMPLES,
    MIN_POWER,
    NUM_MELS,
    MelFrames,
)

Floats = NDArray[np.float32]
WINDOW_FRAMES = WINDOW_SAMPLES // HOP_SAMPLES  # 200: the audio tower's own chunk, 50 embeddings
CLAMP = 8.0  # log10 of power: features end 80 dB below the clip's loudest cell


@dataclass(frozen=True)
class MelWindow:
    """Up to 2 s of log-mel before the clip-wide clamp.

    raw: [128, n_frames] float32, log10 of mel power, at least -10. maximum: over raw; where
    `final`, also over the frames behind the clip's end that the stock extractor computes and drops.
    minimum: over raw. final: the clip ends in this window (in a provisional one: would end).
    end_samples: how many of the clip's samples lie before the end of this window.
    """

    index: int
    raw: Floats
    maximum: float
    minimum: float
    n_frames: int
    final: bool
    end_samples: int

    def features(self, clip_max: float) -> Floats:
        """The model's input [128, n_frames] float32, clamped 80 dB below clip_max."""
        floor = np.float32(clip_max) - np.float32(CLAMP)
        return (np.maximum(self.raw, floor) + np.float32(4.0)) / np.float32(4.0)


def num_embeddings(n_frames: int) -> int:
    """The tower's own `_get_feat_extract_output_lengths`: 200 -> 50, 3..6 -> 1, 0..2 -> 0."""
    return ((n_frames - 1) // 2 - 1) // 2 + 1 if n_frames > 0 else 0


class StreamingLogMel:
    """One clip's log-mel, window by window; its state is at most 2 s of frames and 0.2 s of
    samples.

    A window comes as soon as 40 samples behind its boundary are known. Under the final `maximum`,
    the features of all windows are those of transformers' WhisperFeatureExtractor (feature_size
    128, 5.23) on clips shorter than the released chunk_length of 300 s. There the stock extractor
    cuts; this one goes on. One object hears one clip.
    """

    def __init__(self) -> None:
        self.num_samples = 0
        # over all frames so far, after `finish` the clip's own; it never falls
        self.maximum = _silence()
        self._heard = MelFrames()
        self._frames: list[Floats] = []  # blocks of the window being filled, each [128, 20]
        self._index = 0

    def push(self, samples: NDArray[np.float32]) -> list[MelWindow]:
        """Takes samples [n] float32; returns the windows that are now complete (mostly none)."""
        self.num_samples += len(samples)
        windows = []
        for block in self._blocks(samples):
            self._frames.append(block)
            if len(self._frames) * BLOCK_FRAMES == WINDOW_FRAMES:
                windows.append(self._window(np.concatenate(self._frames, axis=1)))
                self._frames = []
        return windows

    def provisional(self) -> MelWindow | None:
        """The last window as if the clip ended now, if there is one; changes nothing."""
        twin = copy.copy(self)
        twin._heard = copy.copy(self._heard)
        twin._frames = list(self._frames)
        windows = twin.finish()
        return windows[0] if windows else None

    def finish(self) -> list[MelWindow]:
        """Ends the clip; returns its last window, if there is one left. Then only `maximum` may be
        read.

        A rest of 1 or 2 frames makes no embedding (`num_embeddings`), so it makes no window, though
        it counts in `maximum`, as in the stock extractor. Hence a clip of up to 20 ms has no window
        at all.
        """
        # Zeros behind the end, like the stock's padding, until every frame that touches a
        # sample is computed: the valid ceil(n / 160) and two more, which are dropped but count
        # in the maximum.
        zeros = np.zeros((BLOCK_FRAMES + 2) * HOP_SAMPLES + FFT_SAMPLES, np.float32)
        self._frames.extend(self._blocks(zeros))
        rest = math.ceil(self.num_samples / HOP_SAMPLES) - self._index * WINDOW_FRAMES
        if num_embeddings(rest) == 0:
            return []
        # With 1..39 samples behind a boundary the window before it is still here, and the rest
        # is 201 frames.
        raw = np.concatenate(self._frames, axis=1)[:, : min(rest, WINDOW_FRAMES)].copy()
        return [self._window(raw, final=True)]

    def _window(self, raw: Floats, final: bool = False) -> MelWindow:
        heard = np.concatenate(self._frames, axis=1) if final else raw
        window = MelWindow(
            index=self._index,
            raw=raw,
            maximum=float(heard.max()),
            minimum=float(raw.min()),
            n_frames=raw.shape[1],
            final=final,
            end_samples=min(self.num_samples, (self._index + 1) * WINDOW_SAMPLES),
        )
        self._index += 1
        return window

    def _blocks(self, samples: NDArray[np.float32]) -> list[Floats]:
        """Appends samples and computes every block that is complete: raw log-mel [128, 20] each."""
        frames = self._heard.push(samples)
        if not len(frames):
            return []
        self.maximum = max(self.maximum, float(frames.max()))
        return list(frames.reshape(-1, BLOCK_FRAMES, NUM_MELS).transpose(0, 2, 1))


@functools.cache
def _silence() -> float:
    """What a frame without sound holds."""
    return float(np.log10(np.float32(MIN_POWER)))
