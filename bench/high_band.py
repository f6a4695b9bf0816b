"""How well do low bands tell a high one that a telephone cuts off, and the numbers that tell it.

    python -m bench.high_band --clones DIR [--num 250]
    python -m bench.high_band --people DIR [--num 250]

--clones: those of recordings.toml. Taken are three recordings of a speaker, and the first so many
of a source, their first 8 s. Each is coded as a telephone codes it (mu-law at 8 kHz), and what was
there above 3,700 Hz is guessed by streamer/core/audio/high_band.py, learned in five folds apart by
speaker. The numbers printed at the end are learned from all. --people: recordings of held-out
people, as bench.measures takes them; how far measures are off where the high band is missing, and
where it is guessed. `python -m bench.people --only robust --change mu-law` asks the same of words.
On one core a minute each.
"""

from __future__ import annotations

import argparse
import itertools
import zlib
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from bench.common import options_of, progress, table_of, write
from bench.errors import chosen
from bench.measures import chosen as drawn
from bench.measures import measured
from bench.people_changes import coded_as
from pipelines.embedded import recordings
from streamer.core.audio.chunker import QUALITY
from streamer.core.audio.high_band import (
    BIN_HZ,
    FRAME_SAMPLES,
    HIGH_BINS,
    HOP_SAMPLES,
    NUM_BANDS,
    TELEPHONE_HZ,
    HighBand,
    Known,
    window,
)
from streamer.core.audio.pcm import SAMPLE_RATE_HZ

MOST_S = 8
FOLDS = 5
QUIET_DB, LEAST_WEIGHT = 40, 0.1  # a frame so far under the loudest counts so much
SILENT_DB = 45  # and so far under it, nothing
RIDGE = 1.0
MEASURES = (
    "rate_syllables_per_s",
    "pitch_sd_semitones",
    "level_dbfs",
    "pause_share",
    "timbre_db",
    "snr_db",
)
NUM_KNOWN = 2 * NUM_BANDS + 1
Doubles = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--clones", type=Path)
    given.add_argument("--people", type=Path)
    parser.add_argument("--num", type=int, default=250)
    options = options_of(parser)
    rows = learned_rows(options) if options.clones else measured_rows(options)
    print(table_of(rows))
    print(write("high_band" if options.clones else "high_band_measures", rows))


def learned_rows(options: argparse.Namespace) -> list[dict[str, object]]:
    """A row for each band; prints the numbers."""
    known = recordings.table()
    taken = [c for s in known["source"] for c in chosen(s, options.clones, options.num)]
    decoded = recordings.decoded(progress(taken, "clips"), known["filters"])
    told, parts = zip(*((c.speaker, frames_of(samples)) for c, samples in decoded), strict=True)
    fold_of = [zlib.crc32(name.encode()) % FOLDS for name in told]
    frames = np.concatenate(parts)
    numbers = learned(frames)
    print("CONSTANT", np.array2string(numbers[0], precision=1, separator=", "))
    print("WEIGHTS", np.array2string(numbers[1:], precision=3, separator=", "))
    return judged(frames, np.repeat(fold_of, [len(part) for part in parts]))


def measured_rows(options: argparse.Namespace) -> list[dict[str, object]]:
    """A row for each measure: its mean difference from that of the whole recording, and the mean of
    its size."""
    off: dict[str, list[tuple[float, float]]] = {name: [] for name in MEASURES}
    for each in progress(drawn(options), "clips"):
        whole, _ = soundfile.read(each["file"], dtype="float32")
        narrow = at_8_khz(whole)
        high_band = HighBand()
        filled = np.concatenate([high_band.push(narrow), high_band.finish()])
        of = [measured(samples) for samples in (whole, narrow, filled)]
        for name, pairs in off.items():
            true, without, guessed = (getattr(measures, name) for measures in of)
            if None not in (true, without, guessed):
                pairs.append((without - true, guessed - true))
    return [
        {
            "measure": name,
            "clips": len(pairs),
            "missing, mean": float(np.mean(pairs, 0)[0]),
            "missing, off": float(np.mean(np.abs(pairs), 0)[0]),
            "guessed, mean": float(np.mean(pairs, 0)[1]),
            "guessed, off": float(np.mean(np.abs(pairs), 0)[1]),
        }
        for name, pairs in off.items()
    ]


def at_8_khz(samples: np.ndarray) -> np.ndarray:
    """As a telephone codes it, at 16 kHz again, with nothing above 4 kHz."""
    narrow = np.clip(soxr.resample(samples, SAMPLE_RATE_HZ, TELEPHONE_HZ), -1, 1)
    coded = coded_as(narrow, TELEPHONE_HZ, "WAV", "ULAW")
    return soxr.resample(coded, TELEPHONE_HZ, SAMPLE_RATE_HZ, QUALITY).astype(np.float32)


def frames_of(samples: np.ndarray) -> Doubles:
    """[n, weight, what is known, guessed bands]; these in dB over the mean of the known ones."""
    whole = samples[: MOST_S * SAMPLE_RATE_HZ]
    level, known = Known().of(power_of(at_8_khz(whole)))
    high = power_of(whole)[: len(level)]
    bands = [high[:, a:b].mean(1) for a, b in itertools.pairwise(HIGH_BINS)]
    missing = 10 * np.log10(np.stack(bands, 1) + 1e-9) - level
    under = np.percentile(level, 95) - level[:, 0]
    weight = np.where(under > SILENT_DB, 0, np.clip(1 - under / QUIET_DB, LEAST_WEIGHT, 1))
    return np.hstack([weight[:, np.newaxis], known, missing])


def power_of(samples: np.ndarray) -> np.ndarray:
    """[n, bins] of frames as HighBand reads them."""
    view = np.lib.stride_tricks.sliding_window_view(samples, FRAME_SAMPLES)[::HOP_SAMPLES]
    return np.abs(np.fft.rfft(view * window())) ** 2


def learned(frames: Doubles) -> Doubles:
    """Least squares [1 + NUM_KNOWN, guessed bands]: the constant first."""
    weight, x, y = np.split(frames, [1, 1 + NUM_KNOWN], 1)
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
        weight, x, y = np.split(judge, [1, 1 + NUM_KNOWN], 1)
        off.append((y - numbers[0] - x @ numbers[1:]) ** 2)
        alone.append((y - np.average(learn[:, 1 + NUM_KNOWN :], 0, learn[:, 0])) ** 2)
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
