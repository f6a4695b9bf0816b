"""How often levels were right, against how sure the models were. In: what was told. Out: a PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.common import panels, saved

NUM_BINS = 10
LEAST = 20  # levels in a bin: of fewer a dot says nothing
COLOURS = {"edge": "tab:orange", "gated": "tab:green", "cloud": "tab:blue"}


def bins_of(sure: np.ndarray) -> np.ndarray:
    """The bin of each confidence [n]: ten of equal width."""
    return np.minimum((sure * NUM_BINS).astype(int), NUM_BINS - 1)


def plot(found: Mapping[str, Sequence[Any]]) -> Path:
    """Reliability above, how often each confidence is said below; a column for each mode."""
    shares = {"height_ratios": (3.5, 1), "sharex": True, "sharey": "row"}
    figure, axes = panels(2, len(found), (11, 5), **shares)
    for column, (mode, told) in zip(axes.T, found.items(), strict=True):
        sure = np.array([one.sure for one in told])
        right = np.array([one.is_right for one in told], float)
        reliability(column[0], sure, right, COLOURS[mode])
        column[0].set(title=f"{mode}: {len(told)} levels", xlim=(0, 1), ylim=(0, 1))
        column[1].hist(sure, np.linspace(0, 1, 2 * NUM_BINS + 1), color=COLOURS[mode], alpha=0.7)
        column[1].set(xlabel="confidence")
    axes[0, 0].set(ylabel="share that is right")
    axes[1, 0].set(ylabel="levels")
    return saved(figure, "confidence")


def reliability(axis: Any, sure: np.ndarray, right: np.ndarray, colour: str) -> None:
    """A dot for each bin with its 95 % interval, on the line where both are the same."""
    axis.plot((0, 1), (0, 1), color="0.7", linewidth=1)
    which = bins_of(sure)
    for i in range(NUM_BINS):
        own = right[which == i]
        if len(own) < LEAST:
            continue
        error = 1.96 * np.sqrt(own.mean() * (1 - own.mean()) / len(own))
        axis.errorbar(sure[which == i].mean(), own.mean(), error, fmt="o", color=colour, capsize=2)
    axis.grid(alpha=0.3)
