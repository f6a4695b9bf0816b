"""The compiled search for F0 beside one that a reader can follow."""

import itertools

import numpy as np
import pytest

from streamer.model.kernels.library import NUM_CANDIDATES, kernel
from streamer.model.kernels.pitch import (
    JUMP_COST,
    LEAST_STRENGTH,
    OCTAVE_COST,
    SILENT,
    VOICED,
    VOICING_COST,
)

COLUMNS = 2 * NUM_CANDIDATES + 1


def path(rows, low=60.0, high=500.0, loudest=1.0):
    num = len(rows)
    f0 = np.zeros(num, np.float32)
    shape = (num, NUM_CANDIDATES + 1)
    room = (np.empty(shape, np.float32), np.empty(shape, np.float32), np.zeros(shape, np.int8))
    sizes = np.array([0, NUM_CANDIDATES, COLUMNS - 1])
    kernel("find path")(rows, sizes, np.array([loudest, low, high], np.float32), *room, f0)
    return f0


def gain(rows, way, high=500.0):
    """Of one way through the candidates: 0 is unvoiced, k the k-th."""
    total, before = 0.0, None
    for row, state in zip(rows, way, strict=True):
        hz = row[state - 1] if state else 0.0
        if state:
            total += row[NUM_CANDIDATES + state - 1] - OCTAVE_COST * np.log2(high / hz)
        else:
            total += VOICED + max(0, 2 - row[-1] * (1 + VOICED) / SILENT)
        if before is not None and (before > 0) != (hz > 0):
            total -= VOICING_COST
        elif before:
            total -= JUMP_COST * abs(np.log2(hz / before))
        before = hz
    return total


@pytest.mark.parametrize("seed", range(20))
def test_no_other_way_gains_more(seed):
    chance = np.random.default_rng(seed)
    rows = np.zeros((5, COLUMNS), np.float32)
    rows[:, :NUM_CANDIDATES] = chance.uniform(70, 450, (5, NUM_CANDIDATES))
    rows[:, NUM_CANDIDATES:-1] = chance.uniform(0.3, 1, (5, NUM_CANDIDATES))
    rows[:, -1] = chance.choice([0.005, 0.05, 1], 5)
    rows[chance.integers(5), 2:4] = 0  # fewer candidates
    ways = [
        way
        for way in itertools.product(range(NUM_CANDIDATES + 1), repeat=5)
        if all(not k or row[k - 1] > 0 for row, k in zip(rows, way, strict=True))
    ]
    best = max(ways, key=lambda way: gain(rows, way))
    wanted = [row[k - 1] if k else 0 for row, k in zip(rows, best, strict=True)]
    assert path(rows).tolist() == pytest.approx(wanted)


@pytest.mark.parametrize("seed", range(5))
def test_the_best_peaks_are_kept_best_first(seed):
    chance = np.random.default_rng(seed)
    smooth = np.convolve(chance.normal(0, 1, 400), np.hanning(9), "same")
    curve = (0.9 * smooth / np.abs(smooth).max()).astype(np.float32)
    curve[0] = 1
    rows = np.zeros((2, COLUMNS), np.float32)
    scale = np.ones(400, np.float32)
    curves = np.stack([curve, np.zeros(400, np.float32)])
    limits = np.array([16_000, 60, 500], np.float32)
    kernel("find peaks")(curves, scale, limits, np.array([32, 300, 0, NUM_CANDIDATES]), rows)
    wanted = []
    for lag in range(32, 300):
        before, here, behind = (float(each) for each in curve[lag - 1 : lag + 2])
        if here > LEAST_STRENGTH and here > before and here >= behind:
            top = np.polyfit([-1, 0, 1], [before, here, behind], 2)
            off = -top[1] / (2 * top[0])
            hz, strength = 16_000 / (lag + off), np.polyval(top, off)
            if 60 <= hz <= 500:
                wanted.append((hz, strength))
    wanted.sort(key=lambda each: -(each[1] + OCTAVE_COST * np.log2(each[0])))
    assert len(wanted) > NUM_CANDIDATES
    hz, strength = zip(*wanted[:NUM_CANDIDATES], strict=True)
    assert rows[0, :NUM_CANDIDATES] == pytest.approx(hz, rel=1e-4)
    assert rows[0, NUM_CANDIDATES:-1] == pytest.approx(strength, abs=1e-4)
    assert not rows[1].any()
