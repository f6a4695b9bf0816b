"""Samples at 16 kHz come in; raw log-mel goes out, in frames of 10 ms.

The same frames whatever the cut, to the last bit. The filters are the stock extractor's bits; its
Fourier transform is MKL's, ours NumPy's: features differ by up to 4e-5 on speech, which is as far
as the stock's own float32 is from the true value (tests/model/audio/test_mel.py).
"""

import functools

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.model.kernels.arithmetic import multiply
from streamer.model.kernels.simd import PANEL

Floats = NDArray[np.float32]
NUM_MELS = 128
FFT_SAMPLES = 400
HOP_SAMPLES = 160
HALF_SAMPLES = FFT_SAMPLES // 2
# All frames are computed in blocks of this many, so no cut of the input changes a bit, and the
# running maximum is known every 200 ms. It costs 2 ms per second of audio on one thread
# (2026-11).
BLOCK_FRAMES = 20
BLOCK_SAMPLES = (BLOCK_FRAMES - 1) * HOP_SAMPLES + FFT_SAMPLES
MIN_POWER = 1e-10
# Zeros that let every frame be known which begins in a clip
BEHIND_SAMPLES = BLOCK_SAMPLES - HALF_SAMPLES


class MelFrames:
    """One clip's frames; its state is under 0.22 s of samples. Those before the first sample are
    its reflection, as in the stock extractor."""

    def __init__(self) -> None:
        self._samples = np.zeros(0, np.float32)  # from the first sample of the next block on
        self._has_start = False  # whether the reflection before the first sample is in place

    def push(self, samples: Floats) -> Floats:
        """Takes samples [n] float32; returns the frames of the blocks that are now complete
        [num_blocks * BLOCK_FRAMES, 128], log10 of mel power, at least -10."""
        held = np.concatenate([self._samples, samples], dtype=np.float32)
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

    def finish(self, samples: Floats) -> Floats:
        """Takes the clip's last samples [n] float32; returns the frames from the next block on.
        They go on behind the clip's end, to the end of a block."""
        return self.push(np.concatenate([samples, np.zeros(BEHIND_SAMPLES, np.float32)]))


def _log_mel(samples: Floats) -> Floats:
    """Raw log10 mel power [n * 20, 128] of samples [n, 3440].

    The product with the filters is the compiled kernels': its sums have one order for any number of
    rows, on any machine and any number of threads.
    """
    frames = np.lib.stride_tricks.sliding_window_view(samples, FFT_SAMPLES, axis=1)
    spectrum = np.fft.rfft(frames[:, ::HOP_SAMPLES] * _hann())
    power = (spectrum.real**2 + spectrum.imag**2).reshape(-1)
    rows = len(samples) * BLOCK_FRAMES
    mels = np.zeros(rows * NUM_MELS, np.float32)
    bins = HALF_SAMPLES + 1
    sizes = (rows, bins, NUM_MELS // PANEL)
    multiply(power, bins, _panels(), 0, PANEL, bins * PANEL, mels, NUM_MELS, *sizes)
    return np.log10(np.maximum(mels, np.float32(MIN_POWER))).reshape(-1, NUM_MELS)


@functools.cache
def _hann() -> Floats:
    """The periodic window."""
    turns = np.arange(FFT_SAMPLES) / FFT_SAMPLES
    return (0.5 - 0.5 * np.cos(2.0 * np.pi * turns)).astype(np.float32)


@functools.cache
def _panels() -> Floats:
    """The filters as the kernels read a matrix: [128 / PANEL, 201, PANEL], flat."""
    filters = _mel_filters().reshape(HALF_SAMPLES + 1, -1, PANEL)
    return np.ascontiguousarray(filters.transpose(1, 0, 2)).reshape(-1)


@functools.cache
def _mel_filters() -> Floats:
    """Slaney's mel filters [201, 128] float32, bit-equal to transformers' `mel_filter_bank`.

    The scale: 200/3 Hz per mel below 1 kHz (15 mel), then 27 mel per factor of 6.4; triangles have
    area 1.
    """
    top = 15.0 + np.log(8000.0 / 1000.0) * (27.0 / np.log(6.4))
    mels = np.linspace(0.0, top, NUM_MELS + 2)
    edges = 200.0 * mels / 3.0
    log_region = mels >= 15.0
    edges[log_region] = 1000.0 * np.exp((np.log(6.4) / 27.0) * (mels[log_region] - 15.0))
    slopes = (
        edges[np.newaxis, :] - np.linspace(0, SAMPLE_RATE_HZ // 2, HALF_SAMPLES + 1)[:, np.newaxis]
    )
    widths = np.diff(edges)
    filters = np.maximum(0.0, np.minimum(-slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]))
    filters *= 2.0 / (edges[2:] - edges[:-2])
    return filters.astype(np.float32)
