"""Is a confidence the chance that the level is right? In: recorded people. Out: rows, a plot.

    python -m bench.confidence --data DIR [--fit] [--keep]

DIR: recordings of held-out people with manifest.jsonl, as `python -m pipelines.embedded.recordings
--held-out DIR` writes them. Half of the people fit the curves (`--fit` does it anew, and writes
them into the cards of the embedded pair), the other half gives the figures. The truth is what the
labels measure. ECE: expected calibration error over ten bins of equal width (Guo et al. 2017, arXiv
1706.04599). Beside it stands what it would be, by chance alone, if every confidence were exact.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import numpy as np

from bench.common import options_of, progress, table_of, write
from bench.confidence_fit import fit
from bench.confidence_plot import NUM_BINS, bins_of, plot
from bench.people_clips import Clip, recordings
from pipelines.embedded.labels import ATTRIBUTES
from pipelines.embedded.people_gate import half
from pipelines.embedded.speak import SAMPLE_RATE
from streamer import Describer, Description

MODES = ("edge", "gated", "cloud")  # exact says what cloud says
CHANCES = 200  # draws, for what chance alone gives


class Told(NamedTuple):
    """One attribute of one recording: how sure the model was, and whether the level was right."""

    attribute: str
    length: str
    sure: float
    is_right: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument(
        "--fit", action="store_true", help="fit the curves first, on the other half"
    )
    options = options_of(parser)
    clips = [clip for clip in recordings(options.data, None) if options.fit or checks(clip)]
    if options.fit:
        fit([clip for clip in clips if not checks(clip)])
        clips = [clip for clip in clips if checks(clip)]
    print(f"{len(clips)} recordings of {len({clip.speaker for clip in clips})} people")
    rows: list[dict[str, Any]] = []
    found = {}
    for mode in MODES:
        found[mode] = told(clips, anyio.run(described, clips, mode))
        rows += rows_of(mode, found[mode])
    print(table_of(rows))
    print("\nwritten:", write("confidence", rows), plot(found))


def checks(clip: Clip) -> bool:
    """Whether the clip's speaker is of the half that gives the figures."""
    return half(clip.speaker) == 1


async def described(clips: Sequence[Clip], mode: Any) -> list[Description]:
    async with Describer.open(mode=mode) as describer:
        return [
            await describer.describe((clip.samples, SAMPLE_RATE)) for clip in progress(clips, mode)
        ]


def told(clips: Sequence[Clip], found: Sequence[Description]) -> list[Told]:
    """Every attribute whose level is said, and known."""
    return [
        Told(name, clip.length, sure, one.attributes[name] == clip.levels[name])
        for clip, one in zip(clips, found, strict=True)
        for name, sure in (one.confidence or {}).items()
        if sure is not None and clip.levels.get(name) is not None
    ]


def rows_of(mode: str, found: Sequence[Told]) -> list[dict[str, Any]]:
    """All, then by attribute, then by length."""
    lengths = sorted({one.length for one in found})
    rows = [row_of(mode, "all", found)]
    rows += [row_of(mode, name, [t for t in found if t.attribute == name]) for name in ATTRIBUTES]
    return rows + [row_of(mode, name, [t for t in found if t.length == name]) for name in lengths]


def row_of(mode: str, group: str, found: Sequence[Told]) -> dict[str, Any]:
    sure = np.array([one.sure for one in found])
    right = np.array([one.is_right for one in found], float)
    draws = np.random.default_rng(0).random((CHANCES, len(sure))) < sure
    return {
        "mode": mode,
        "of": group,
        "n": len(found),
        "right": right.mean(),
        "said": sure.mean(),
        "ECE": ece(sure, right),
        "by chance": np.mean([ece(sure, draw.astype(float)) for draw in draws]),
        "AUROC": auroc(sure, right),
    }


def ece(sure: np.ndarray, right: np.ndarray) -> float:
    """Both [n]: the mean over bins of |said - right|, by how many each bin holds."""
    which = bins_of(sure)
    return float(
        sum(
            abs(sure[which == i].mean() - right[which == i].mean()) * (which == i).mean()
            for i in range(NUM_BINS)
            if (which == i).any()
        )
    )


def auroc(sure: np.ndarray, right: np.ndarray) -> float:
    """The chance that a right level has the higher confidence than a wrong one; ties count half."""
    pairs = sure[right == 1][:, None] - sure[right == 0][None, :]
    return float((pairs > 0).mean() + (pairs == 0).mean() / 2)


if __name__ == "__main__":
    main()
