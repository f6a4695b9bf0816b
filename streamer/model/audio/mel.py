"""Samples at 16 kHz come in; raw log-mel goes out, in frames of 10 ms.

The same frames whatever the cut, to the last bit. The filters are the stock extractor's bits; its
Fourier transform is MKL's, ours NumPy's: features differ by up to 4e-5 on speech, which is as far
as the stock's own float32 is from the true value (tests/model/audio/test_mel.py).
"""

from __future__ import annotations

import copy
import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamer.core.audio.pcm import SAMPLE_RATE_HZ, WINDOW_SAMPLES
from streamer.core.measures.frames import HOP_SAMPLES, MEL_EDGES_HZ, NUM_MELS, Floats
from streamer.model.kernels.library import Matrix

FFT_SAMPLES = 400
HALF_SAMPLES = FFT_SAMPLES // 2
# All frames are computed in blocks of this many, so no cut of the input changes a bit, and the
# running maximum is known every 200 ms. A second of audio costs 2 ms on one thread (2026-11).
BLOCK_FRAMES = 20
BLOCK_SAMPLES = (BLOCK_FRAMES - 1) * HOP_SAMPLES + FFT_SAMPLES
MIN_POWER = np.float32(1e-10)
SILENCE = float(np.log10(MIN_POWER))  # of a frame without sound
# Zeros that let every frame be known that touches a sample of the clip, to the end of a block
BEHIND_SAMPLES = (BLOCK_FRAMES + 2) * HOP_SAMPLES + FFT_SAMPLES


class MelFrames:
    """One clip's frames, its start reflected as in the stock extractor. Holds under 0.22 s."""

    def __init__(self) -> None:
        self._samples = np.zeros(0, np.float32)  # from the first sample of the next block on
        self._has_start = False  # whether the reflection before the first sample is in place

    def hear(self, samples: Floats, is_last: bool = False) -> Floats:
        """Takes samples [n] float32; returns the frames of the blocks that are now complete
        [num_blocks * BLOCK_FRAMES, 128], log10 of mel power, at least -10. is_last: the clip ends
        here; frames after its end are returned, too, to the end of a block."""
        silence = np.zeros(BEHIND_SAMPLES if is_last else 0, np.float32)
        held = np.concatenate([self._samples, samples, silence], dtype=np.float32)
        if not self._has_start and len(held) > HALF_SAMPLES:
            held = np.concatenate([held[HALF_SAMPLES:0:-1], held])
            self._has_start = True
        step = BLOCK_FRAMES * HOP_SAMPLES
        count = max(0, (len(held) - BLOCK_SAMPLES) // step + 1) if self._has_start else 0
        self._samples = held[count * step :].copy()
        if not count:
            return np.zeros((0, NUM_MELS), np.float32)
        pieces = np.lib.stride_tricks.sliding_window_view(held, BLOCK_SAMPLES)[::step]
        return _log_mel(pieces[:count])


def _log_mel(samples: Floats) -> Floats:
    """Raw log10 mel power [n * 20, 128] of samples [n, 3440]."""
    frames = np.lib.stride_tricks.sliding_window_view(samples, FFT_SAMPLES, axis=1)
    spectrum = np.fft.rfft(frames[:, ::HOP_SAMPLES] * hann(FFT_SAMPLES))
    power: Any = spectrum.real**2 + spectrum.imag**2
    return np.log10(np.maximum(_filters()(power.reshape(-1, HALF_SAMPLES + 1)), MIN_POWER))


@functools.cache
def hann(num: int) -> Floats:
    """The periodic window [num]."""
    return (0.5 - 0.5 * np.cos(2.0 * np.pi * (np.arange(num) / num))).astype(np.float32)


@functools.cache
def _filters() -> Matrix:
    return Matrix(mel_filters())


def mel_filters() -> Floats:
    """Slaney's mel filters [201, 128] of area 1, bit-equal to transformers' `mel_filter_bank`."""
    edges = MEL_EDGES_HZ
    bins_hz = np.linspace(0, SAMPLE_RATE_HZ // 2, HALF_SAMPLES + 1)
    slopes = edges[np.newaxis, :] - bins_hz[:, np.newaxis]
    widths = np.diff(edges)
    filters = np.maximum(0.0, np.minimum(-slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]))
    filters *= 2.0 / (edges[2:] - edges[:-2])
    return filters.astype(np.float32)


WINDOW_FRAMES = WINDOW_SAMPLES // HOP_SAMPLES  # 200: the audio tower's own chunk, 50 embeddings
CLAMP = 8.0  # log10 of power: features end 80 dB below the clip's loudest cell


@dataclass(frozen=True)
class MelWindow:
    """Up to 2 s of log-mel before the clip-wide clamp.

    raw: [128, n_frames] float32, log10 of mel power, at least -10. maximum: over raw; in the clip's
    last window also over the frames after its end that the stock extractor computes and drops.
    minimum: over raw. end_samples: how many samples of the clip lie before the window's end.
    """

    raw: Floats
    maximum: float
    minimum: float
    end_samples: int

    def features(self, clip_max: float) -> Floats:
        """The model's input [128, n_frames] float32, clamped 80 dB below clip_max."""
        floor = np.float32(clip_max) - np.float32(CLAMP)
        return (np.maximum(self.raw, floor) + np.float32(4.0)) / np.float32(4.0)


def num_embeddings(n_frames: int) -> int:
    """The tower's own `_get_feat_extract_output_lengths`: 200 -> 50, 3..6 -> 1, 0..2 -> 0."""
    return ((n_frames - 1) // 2 - 1) // 2 + 1 if n_frames > 0 else 0


class StreamingLogMel(MelFrames):
    """One clip's log-mel, window by window. It holds at most 2 s of frames and 0.2 s of samples.

    A window comes as soon as 40 samples after its boundary are known. Under the final `maximum`,
    the features of all windows are those of transformers' WhisperFeatureExtractor (feature_size
    128, 5.23) on clips shorter than the released chunk_length of 300 s. There the stock extractor
    cuts; this one goes on. One object hears one clip.
    """

    def __init__(self) -> None:
        super().__init__()
        self.num_samples = 0
        # over all frames so far, after `finish` the clip's own; it never falls
        self.maximum = SILENCE
        self._frames = np.zeros((0, NUM_MELS), np.float32)  # of the window being filled
        self._num_windows = 0

    def push(self, samples: Floats) -> list[MelWindow]:
        """Takes samples [n] float32; returns the windows that are now complete (mostly none)."""
        self.num_samples += len(samples)
        self._fill(samples)
        return [self._window(WINDOW_FRAMES) for _ in range(len(self._frames) // WINDOW_FRAMES)]

    def provisional(self) -> MelWindow | None:
        """The last window as if the clip ended now, if there is one; changes nothing."""
        return next(iter(copy.copy(self).finish()), None)

    def finish(self) -> list[MelWindow]:
        """Ends the clip; returns its last window, if any is left. Then only `maximum` may be read.

        A rest of 1 or 2 frames makes no embedding (`num_embeddings`), so it makes no window, though
        it counts in `maximum`, as in the stock extractor. So a clip of up to 20 ms has none.
        """
        # As in the stock: ceil(n / 160) frames, and two more that only count in the maximum.
        self._fill(np.zeros(0, np.float32), is_last=True)
        rest = math.ceil(self.num_samples / HOP_SAMPLES) - self._num_windows * WINDOW_FRAMES
        if num_embeddings(rest) == 0:
            return []
        # With 1..39 samples after a boundary the window before it is in the rest: 201 frames.
        return [self._window(min(rest, WINDOW_FRAMES), is_last=True)]

    def _fill(self, samples: Floats, is_last: bool = False) -> None:
        """Append the frames of every block that is complete with them."""
        frames = self.hear(samples, is_last)
        self.maximum = float(frames.max(initial=self.maximum))
        self._frames = np.concatenate([self._frames, frames])

    def _window(self, num: int, is_last: bool = False) -> MelWindow:
        """The next `num` frames."""
        raw = np.ascontiguousarray(self._frames[:num].T)
        maximum = float(self._frames.max()) if is_last else float(raw.max())
        self._frames = self._frames[num:]
        self._num_windows += 1
        end_samples = min(self.num_samples, self._num_windows * WINDOW_SAMPLES)
        return MelWindow(raw, maximum, float(raw.min()), end_samples)
