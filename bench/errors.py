"""How far are F0's median and movement from Praat's on training's people? ERRORS and SURE of
streamer/core/measures/levels.py.

    python -m bench.errors --clones DIR [--num 400]

DIR: the clones of recordings.toml. Of the first so many recordings of a source, three of a speaker
are taken. near: within 2 %, or 0.3 semitones. The windows were chosen on 498 of them, and nothing
else; `python -m bench.measures` judges held-out people. `python -m bench.rate` prints the rate's
own, in folds. On one core 4 minutes.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.common import options_of, progress, table_of, write
from bench.measures import labelled, measured
from pipelines.embedded import recordings
from pipelines.embedded.recordings import Clip
from streamer.core.measures.levels import level_of

PER_SPEAKER = 3
SHARE = 80  # percent of recordings within the error
Doubles = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clones", type=Path, required=True)
    parser.add_argument("--num", type=int, default=400)
    options = options_of(parser)
    known = recordings.table()
    taken = [c for s in known["source"] for c in chosen(s, options.clones, options.num)]
    decoded = recordings.decoded(progress(taken, "clips"), known["filters"])
    pairs = [pair for _, samples in decoded if (pair := of_clip(samples))]
    if not pairs:
        raise SystemExit(f"bench.errors: no clone of recordings.toml lies in {options.clones}")
    found = np.array(pairs)  # [n, pitch or variation, ours or Praat's]
    pitch, variation = found[:, 0], found[:, 1]
    is_near = np.abs(pitch[:, 0] / pitch[:, 1] - 1) <= 0.02
    moves_near = np.abs(variation[:, 0] - variation[:, 1]) <= 0.3
    rows = [
        {**row_of("pitch", pitch), "near": float(np.mean(is_near))},
        {**row_of("variation", variation), "near": float(np.mean(moves_near))},
    ]
    print(table_of(rows))
    print(write("errors", rows))


def chosen(source: dict, clones: Path, most: int) -> Iterator[Clip]:
    """Of training's side."""
    num: Counter[str] = Counter()
    for clip in recordings.clips(clones, source):
        num[clip.speaker] += not clip.held
        if not clip.held and num[clip.speaker] <= PER_SPEAKER and num.total() <= most:
            yield clip


def of_clip(samples: np.ndarray) -> list[tuple[float, float]] | None:
    """Ours and Praat's, of the median in Hz and the SD in semitones; None where too little is
    voiced for either."""
    found = labelled(samples, None)
    if found is None:
        return None
    truth, ours = found[0], measured(samples)
    if ours.pitch_median_hz is None or ours.pitch_sd_semitones is None:
        return None
    return [(ours.pitch_median_hz, truth.pitch), (ours.pitch_sd_semitones, truth.variation)]


def row_of(name: str, pairs: Doubles) -> dict[str, object]:
    """pairs [n, 2]: measured and true."""
    off = np.abs(pairs[:, 0] / pairs[:, 1] - 1)
    error = float(np.percentile(off, SHARE))
    reached = [[level_of(name, x * (1 + side * error)) for side in (-1, 0, 1)] for x in pairs[:, 0]]
    alone = [low == high for low, _, high in reached]
    right = [
        level == level_of(name, y) for (_, level, _), y in zip(reached, pairs[:, 1], strict=True)
    ]
    return {
        "measure": name,
        "clips": len(pairs),
        f"off by at most, in {SHARE} %": error,
        "level right where it reaches no other": float(np.mean(np.array(right)[alone])),
    }


if __name__ == "__main__":
    main()
