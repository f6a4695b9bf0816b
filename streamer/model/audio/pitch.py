"""Samples at 16 kHz come in; what F0 frames of 10 ms may have goes out, the same for every way of
cutting. `f0_of` decides which.

The method is Praat's (Boersma, 1993), and so are its numbers, but for what a stream forbids. Praat
looks twice where labels are measured (pipelines/embedded/synthesis.py): over all voices, then in
windows of three periods of the lowest F0 of this one. Here all frames are looked at once, in
windows for three sorts of voices, and a row holds the candidates of each. Which window counts is
decided when somebody asks.

Its figures beside Praat: docs/measures.md.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.measures.frames import HOP_SAMPLES, MIN_FRAMES
from streamer.model.kernels.library import NUM_CANDIDATES, kernel

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
MIN_HZ = 60.0
MAX_HZ = 500.0
# Each for voices that go no lower. With a fourth window 0.97 of the medians of 498 recordings of
# training's people agree with Praat's, too, and of the SDs (2026-11).
FLOORS_HZ = (60.0, 84.0, 150.0)
NUM_POINTS = (1080, 768, 432)  # of each transform: quick, and no lag that is read wraps round
PERIODS = 3  # of the floor, in a window
FIRST_LAG = int(SAMPLE_RATE_HZ / MAX_HZ)
PEAK_COLUMN = 2 * NUM_CANDIDATES * len(FLOORS_HZ)
NUM_COLUMNS = PEAK_COLUMN + 1  # of a row: F0 and strength of each window, and how loud it is
BLOCK_FRAMES = 20  # at once: arrays of over 128 KB would be mapped anew each time
SILENT_PEAK = 1e-9
OCTAVE_COST = np.float32(0.01)  # Praat's, per octave
LEAST_STRENGTH = np.float32(0.225)  # of a peak; Praat's: half of what makes a frame voiced


class Window(NamedTuple):
    """The window for one floor. scale [lags]: over the window's own autocorrelation. columns: where
    its F0 begin in a row, and their strengths."""

    floor_hz: float
    bell: Floats
    scale: Floats
    num_points: int
    reach: int  # samples of one period
    last_lag: int
    columns: tuple[int, int]


@functools.cache
def windows() -> tuple[Window, ...]:
    """One for each of FLOORS_HZ."""
    found: list[Window] = []
    for floor_hz, num_points in zip(FLOORS_HZ, NUM_POINTS, strict=True):
        half = int(PERIODS / floor_hz * SAMPLE_RATE_HZ / 2) - 1
        hanning = np.hanning(2 * half + 2)[1:-1]
        last = 2 * half // PERIODS + 2
        own = np.fft.irfft(np.abs(np.fft.rfft(hanning, num_points)) ** 2, num_points)
        scale = (own[0] / own[: last + 2]).astype(np.float32)
        reach, at = int(SAMPLE_RATE_HZ / floor_hz), 2 * NUM_CANDIDATES * len(found)
        columns = at, at + NUM_CANDIDATES
        bell: Floats = hanning.astype(np.float32)
        found.append(Window(floor_hz, bell, scale, num_points, reach, last, columns))
    return tuple(found)


class PitchTrack:
    """Rows of one turn, frame i about sample 160 i; holds under 0.1 s of samples."""

    def __init__(self) -> None:
        self._ahead = len(windows()[0].bell) // 2  # after a frame's middle, to know it
        self._held = np.zeros(self._ahead, np.float32)  # silence is before the first sample
        self._num_samples = 0
        self._num_rows = 0

    def push(self, samples: Floats, is_last: bool = False) -> Floats:
        """Take samples [n]; return the rows that are known now [m, NUM_COLUMNS]. is_last: silence
        follows."""
        self._num_samples += len(samples)
        if is_last:
            samples = np.concatenate([samples, np.zeros(self._ahead, np.float32)])
            known = -(-self._num_samples // HOP_SAMPLES)
        else:
            known = (self._num_samples - self._ahead) // HOP_SAMPLES + 1
        self._held = np.concatenate([self._held, samples], dtype=np.float32)
        num = max(0, known - self._num_rows)
        rows = np.zeros((num, NUM_COLUMNS), np.float32)
        for begin in range(0, num, BLOCK_FRAMES):
            for window in reversed(windows()):  # the widest one says how loud it is
                self._look(begin, window, rows[begin : begin + BLOCK_FRAMES])
        self._held = self._held[num * HOP_SAMPLES :].copy()
        self._num_rows += num
        return rows

    def _look(self, begin: int, window: Window, rows: Floats) -> None:
        """Fill the window's columns of the rows, from the held frame `begin` on."""
        half, near, first = len(window.bell) // 2, window.reach // 2 + 1, begin * HOP_SAMPLES

        def around(reach: int) -> Floats:
            """The samples up to `reach` before and after the middle of each row's frame."""
            found = sliding_window_view(self._held, 2 * reach)
            return found[first + self._ahead - reach :: HOP_SAMPLES][: len(rows)]

        means = around(window.reach).mean(1, dtype=np.float64, keepdims=True).astype(np.float32)
        stretches = (around(half) - means) * window.bell
        rows[:, PEAK_COLUMN] = np.abs(stretches[:, half - near : half + near]).max(1)
        spectrum = np.fft.rfft(stretches, window.num_points)
        curves: Any = np.fft.irfft(spectrum.real**2 + spectrum.imag**2, window.num_points)
        frames, hz, strength = _peaks(curves, window)
        # of two periods that fit, the shorter one
        order = np.lexsort((-(strength + OCTAVE_COST * np.log2(hz)), frames))
        frames, hz, strength = frames[order], hz[order], strength[order]
        place = np.arange(len(frames)) - np.searchsorted(frames, frames)
        is_best = place < NUM_CANDIDATES
        for column, found in zip(window.columns, (hz, strength), strict=True):
            rows[frames[is_best], column + place[is_best]] = found[is_best]


def _peaks(curves: Floats, window: Window) -> tuple[NDArray[np.intp], Floats, Floats]:
    """The peaks of autocorrelations [num, lags]: row, frequency in Hz and strength of each."""
    lags = slice(FIRST_LAG - 1, window.last_lag + 1)
    with np.errstate(divide="ignore", invalid="ignore"):  # a silent frame has no peak
        shape = curves[:, lags] * window.scale[lags] / curves[:, :1]
    before, here, after = shape[:, :-2], shape[:, 1:-1], shape[:, 2:]
    frames, lag = at = np.nonzero((here > LEAST_STRENGTH) & (here > before) & (here >= after))
    before, here, after = before[at], here[at], after[at]
    off = np.float32(0.5) * (after - before) / (np.float32(2) * here - before - after)
    strength = here + np.float32(0.25) * (after - before) * off
    strength = np.minimum(strength, 1 / strength)
    hz = np.float32(SAMPLE_RATE_HZ) / ((FIRST_LAG + lag).astype(np.float32) + off)
    is_in = (window.floor_hz <= hz) & (hz <= MAX_HZ)
    return frames[is_in], hz[is_in], strength[is_in]


def f0_of(rows: Floats, speech: Flags) -> Floats:
    """F0 in Hz of frames [n], 0 where unvoiced or without speech. rows [n, NUM_COLUMNS].

    The voice's own range is that of a first look, and limits the second one.
    """
    f0 = np.zeros(len(rows), np.float32)
    if not speech.any():
        return f0
    loudest = max(float(rows[speech, PEAK_COLUMN].max()), SILENT_PEAK)
    shape = (len(rows), NUM_CANDIDATES + 1)

    def look(window: Window, low: float, high: float) -> None:
        """Fill in F0 as the window's candidates between two frequencies tell it."""
        room = (np.empty(shape, np.float32), np.empty(shape, np.float32), np.zeros(shape, np.int8))
        limits = np.array([loudest, low, high], np.float32)
        kernel("find path")(rows, np.array([*window.columns, PEAK_COLUMN]), limits, *room, f0)

    look(windows()[0], MIN_HZ, MAX_HZ)
    voiced = f0[speech & (f0 > 0)]
    if len(voiced) >= MIN_FRAMES:
        # beyond this range lie mostly errors of an octave (De Looze & Hirst, 2008)
        low, high = (float(hz) for hz in np.percentile(voiced, (15, 85)))
        low, high = max(MIN_HZ, 0.75 * low), min(MAX_HZ, 1.6 * high)
        look([window for window in windows() if window.floor_hz <= low][-1], low, high)
    f0[~speech] = 0
    return f0
