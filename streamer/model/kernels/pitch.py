"""F0 as Praat finds it: windowed stretches, the peaks of their autocorrelation, a path.

The method is Boersma's (1993), its costs and thresholds are Praat's own (Sound_to_Pitch.cpp,
Pitch.cpp). One thread, no allocation.
"""

from __future__ import annotations

import math

import numpy as np

from streamer.model.kernels.arithmetic import compiled, f4, part
from streamer.model.kernels.library import NUM_CANDIDATES

LEAST_STRENGTH = f4(0.225)  # Praat's: half of what makes a frame voiced
VOICED = f4(0.45)
SILENT = f4(0.03)  # of the loudest frame
OCTAVE_COST = f4(0.01)  # per octave: of two periods that fit, the shorter one
JUMP_COST = f4(0.35)  # per octave from one frame to the next
VOICING_COST = f4(0.14)  # from voiced to unvoiced, or back
_NEVER = f4(-1e9)


@part
def cut_stretches(samples, sizes, window, stretches, peaks):
    """The stretch about each frame, less its mean, under the window; and the peak of its middle.

    sizes: the first frame's sample, samples from frame to frame, the number of frames, samples to
    either side of a frame whose mean is taken, and the step in `peaks` from frame to frame.
    stretches [num, >= len(window)].
    """
    first, hop, num, reach, stride = sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]
    size, half, near = len(window), len(window) // 2, reach // 2 + 1
    for i in range(num):
        at = first + i * hop
        total = 0.0
        for j in range(at - reach, at + reach):
            total += samples[j]
        mean = f4(total / (2 * reach))
        highest = f4(0)
        for j in range(size):
            value = (samples[at - half + j] - mean) * window[j]
            stretches[i, j] = value
            if half - near <= j < half + near:
                highest = max(highest, abs(value))
        peaks[i * stride] = highest


@part
def find_peaks(curves, scale, limits, sizes, rows):
    """The NUM_CANDIDATES best peaks of each autocorrelation, best first: frequency and strength.

    curves [num, lags]; scale [lags] makes up for the window. limits: samples per second, lowest and
    highest frequency in Hz. sizes: first and last lag, and the columns of `rows` [num, ...] at
    which frequencies and strengths begin.
    """
    rate_hz, low_hz, high_hz = limits[0], limits[1], limits[2]
    first, last, hz_at, strength_at = sizes[0], sizes[1], sizes[2], sizes[3]
    for i in range(len(curves)):
        energy = curves[i, 0]
        rows[i, hz_at : hz_at + NUM_CANDIDATES] = f4(0)
        rows[i, strength_at : strength_at + NUM_CANDIDATES] = f4(0)
        if energy <= f4(0):
            continue
        before = curves[i, first - 1] * scale[first - 1] / energy
        here = curves[i, first] * scale[first] / energy
        for lag in range(first, last):
            after = curves[i, lag + 1] * scale[lag + 1] / energy
            if here > LEAST_STRENGTH and here > before and here >= after:
                off = f4(0.5) * (after - before) / (f4(2) * here - before - after)
                strength = here + f4(0.25) * (after - before) * off
                if strength > f4(1):
                    strength = f4(1) / strength
                hz = rate_hz / (f4(lag) + off)
                if low_hz <= hz <= high_hz:
                    keep_best(rows, i, hz_at, strength_at, hz, strength)
            before = here
            here = after


@compiled
def keep_best(rows, i, hz_at, strength_at, hz, strength):
    """Put a candidate where it belongs among those of row i; the worst falls out."""
    value = strength + OCTAVE_COST * f4(math.log2(hz))
    k = NUM_CANDIDATES
    while k > 0:
        other = rows[i, hz_at + k - 1]
        mine = rows[i, strength_at + k - 1]
        if other > f4(0) and value <= mine + OCTAVE_COST * f4(math.log2(other)):
            break
        if k < NUM_CANDIDATES:
            rows[i, hz_at + k] = other
            rows[i, strength_at + k] = mine
        k -= 1
    if k < NUM_CANDIDATES:
        rows[i, hz_at + k] = hz
        rows[i, strength_at + k] = strength


@part
def find_path(rows, sizes, limits, scores, octaves, back, f0):
    """The F0 of each frame [n], 0 where unvoiced: the best way through the candidates.

    sizes: the columns of `rows` at which frequencies, strengths and the peak begin. limits: the
    loudest peak, lowest and highest frequency in Hz. scores, octaves and back [n,
    NUM_CANDIDATES + 1]: work memory.
    """
    hz_at, strength_at, peak_at = sizes[0], sizes[1], sizes[2]
    loudest, low_hz, high_hz = limits[0], limits[1], limits[2]
    num = len(rows)
    top = f4(math.log2(high_hz))
    for i in range(num):
        loud = min(rows[i, peak_at] / loudest, f4(1))
        scores[i, 0] = VOICED + max(f4(0), f4(2) - loud * (f4(1) + VOICED) / SILENT)
        octaves[i, 0] = f4(0)
        for k in range(NUM_CANDIDATES):
            hz = rows[i, hz_at + k]
            scores[i, k + 1] = _NEVER
            octaves[i, k + 1] = f4(0)
            if low_hz <= hz <= high_hz:
                octaves[i, k + 1] = f4(math.log2(hz))
                lower = OCTAVE_COST * (top - octaves[i, k + 1])
                scores[i, k + 1] = rows[i, strength_at + k] - lower
        if i > 0:
            go_on(i, scores, octaves, back)
    state = np.argmax(scores[num - 1]) if num > 0 else 0
    for i in range(num - 1, -1, -1):
        f0[i] = rows[i, hz_at + state - 1] if state > 0 else f4(0)
        state = back[i, state]


@compiled
def go_on(i, scores, octaves, back):
    """Add to each state of frame i the best way to it from the frame before."""
    for k in range(NUM_CANDIDATES + 1):
        best = f4(2) * _NEVER
        for j in range(NUM_CANDIDATES + 1):
            way = scores[i - 1, j]
            if (j == 0) != (k == 0):
                way -= VOICING_COST
            elif k > 0:
                way -= JUMP_COST * abs(octaves[i, k] - octaves[i - 1, j])
            if way > best:
                best = way
                back[i, k] = j
        scores[i, k] += best
