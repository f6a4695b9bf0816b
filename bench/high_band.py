"""How well do low bands tell a high one that a telephone cuts off, and the numbers that tell it.

    python -m bench.high_band --clones DIR [--num 250]

DIR: the clones of recordings.toml. Taken are three recordings of a speaker, and the first so many
of a source, their first 8 s. Each is coded as a telephone codes it (mu-law at 8 kHz), and what was
there above 3,700 Hz is guessed by streamer/core/audio/high_band.py, learned in five folds apart by
speaker. The numbers printed at the end are learned from all. `python -m bench.people --only robust
--change mu-law` says what it is good for. On one core 1 minute.
"""

from __future__ import annotations

import argparse
import itertools
import zlib
from pathlib import Path

import numpy as np
import soxr
from numpy.typing import NDArray

from bench.common import progress, table_of, write
from bench.errors import chosen
from bench.keep import options_of
from bench.people_changes import coded_as
from pipelines.embedded import recordings
from streamer.core.audio.chunker import QUALITY
from streamer.core.audio.high_band import (
    BIN_HZ,
    FRAME_SAMPLES,
    HIGH_BINS,
    HOP_SAMPLES,
    NUM_BANDS,
    band_levels,
    window,
)
from streamer.core.audio.pcm import SAMPLE_RATE_HZ

MOST_S = 8
FOLDS = 5
TELEPHONE_HZ = 8_000
QUIET_DB, LEAST_WEIGHT = 40, 0.1  # a frame so far under the loudest counts so much
SILENT_DB = 45  # and so far under it, nothing
RIDGE = 1.0
Doubles = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clones", type=Path, required=True)
    parser.add_argument("--num", type=int, default=250)
    options = options_of(parser)
    known = recordings.table()
    taken = [c for s in known["source"] for c in chosen(s, options.clones, options.num)]
    decoded = recordings.decoded(progress(taken, "clips"), known["filters"])
    told, parts = zip(
        *((clip.speaker, frames_of(samples)) for clip, samples in decoded), strict=True
    )
    folds = np.concatenate(
        [
            np.full(len(part), zlib.crc32(name.encode()) % FOLDS)
            for name, part in zip(told, parts, strict=True)
        ]
    )
    frames = np.concatenate(parts)
    rows = judged(frames, folds)
    print(table_of(rows))
    numbers = learned(frames)
    print("CONSTANT", np.array2string(numbers[0], precision=1, separator=", "))
    print("WEIGHTS", np.array2string(numbers[1:], precision=2, separator=", "))
    print(write("high_band", rows))


def frames_of(samples: np.ndarray) -> Doubles:
    """[n, weight, known bands, guessed bands]; the bands in dB over the mean of the known ones."""
    whole = samples[: MOST_S * SAMPLE_RATE_HZ]
    narrow = np.clip(soxr.resample(whole, SAMPLE_RATE_HZ, TELEPHONE_HZ), -1, 1)
    coded = coded_as(narrow, TELEPHONE_HZ, "WAV", "ULAW")
    heard = soxr.resample(coded, TELEPHONE_HZ, SAMPLE_RATE_HZ, QUALITY)
    level, over = band_levels(power_of(heard))
    high = power_of(whole)[: len(level)]
    bands = [high[:, a:b].mean(1) for a, b in itertools.pairwise(HIGH_BINS)]
    missing = 10 * np.log10(np.stack(bands, 1) + 1e-9) - level
    under = np.percentile(level, 95) - level[:, 0]
    weight = np.where(under > SILENT_DB, 0, np.clip(1 - under / QUIET_DB, LEAST_WEIGHT, 1))
    return np.hstack([weight[:, np.newaxis], over, missing])


def power_of(samples: np.ndarray) -> np.ndarray:
    """[n, bins] of frames as HighBand reads them."""
    view = np.lib.stride_tricks.sliding_window_view(samples, FRAME_SAMPLES)[::HOP_SAMPLES]
    return np.abs(np.fft.rfft(view * window())) ** 2


def learned(frames: Doubles) -> Doubles:
    """Least squares [1 + known bands, guessed bands]: the constant first."""
    weight, x, y = np.split(frames, [1, 1 + NUM_BANDS], 1)
    x = np.hstack([np.ones_like(weight), x])
    solved: Doubles = np.linalg.solve(
        (x * weight).T @ x + RIDGE * np.eye(x.shape[1]), (x * weight).T @ y
    )
    return solved


def judged(frames: Doubles, folds: NDArray[np.int64]) -> list[dict[str, object]]:
    """How far off the guess is in each band, and how far its mean alone would be."""
    off, alone, weights = [], [], []
    for fold in range(FOLDS):
        learn, judge = frames[folds != fold], frames[folds == fold]
        numbers = learned(learn)
        weight, x, y = np.split(judge, [1, 1 + NUM_BANDS], 1)
        off.append((y - numbers[0] - x @ numbers[1:]) ** 2)
        alone.append((y - np.average(learn[:, 1 + NUM_BANDS :], 0, learn[:, 0])) ** 2)
        weights.append(weight[:, 0])
    weight = np.concatenate(weights)
    off_db, alone_db = (np.sqrt(np.average(np.concatenate(e), 0, weight)) for e in (off, alone))
    return [
        {
            "from, Hz": first * BIN_HZ,
            "off by, dB": float(a),
            "the mean alone, dB": float(b),
            "frames": len(frames),
        }
        for first, a, b in zip(HIGH_BINS, off_db, alone_db, strict=False)
    ]


if __name__ == "__main__":
    main()
