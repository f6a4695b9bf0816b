"""The path through candidates of F0 that Praat would take.

The method is Boersma's (1993), its costs are Praat's own (Pitch.cpp). One thread, no allocation.
"""

from __future__ import annotations

import math

import numpy as np

from streamer.model.kernels.arithmetic import compiled, f4, part
from streamer.model.kernels.library import NUM_CANDIDATES

VOICED = f4(0.45)
SILENT = f4(0.03)  # of the loudest frame
OCTAVE_COST = f4(0.01)  # per octave: of two periods that fit, the shorter one
JUMP_COST = f4(0.35)  # per octave from one frame to the next
VOICING_COST = f4(0.14)  # from voiced to unvoiced, or back
_NEVER = f4(-1e9)


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
