"""Recordings of people to measure with: samples and their true levels.

The folder's manifest.jsonl has one JSON object per line: file (or wav; relative to the folder), and
where known speaker, source, language, sex and syllables (of its text); kind is "joined-30" for a
turn joined to 30 s. The truth is measured on the recording by pipelines/embedded/labels.py, but for
a row with `measures`, those of its clean signal.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.common import progress
from pipelines.embedded.labels import Measures, measured, speech_frames
from pipelines.embedded.speak import SAMPLE_RATE, read

MANIFEST = "manifest.jsonl"
OF_TEXT = ("rate", "arousal")  # unknown without the number of syllables
LENGTHS = ((0, 3), (3, 6), (6, 15), (15, 1e9))  # seconds


@dataclass(frozen=True)
class Clip:
    """One recording. samples [n] float32 at 16 kHz; syllables: None if the text is unknown."""

    name: str
    speaker: str
    source: str
    language: str
    sex: str
    syllables: float | None
    samples: np.ndarray
    measures: Measures
    length: str  # group of lengths that it belongs to

    @property
    def is_joined(self) -> bool:
        return self.length.endswith("joined")

    @property
    def levels(self) -> dict[str, int]:
        """The true level of every attribute that is known."""
        known = self.measures.levels()
        return {n: level for n, level in known.items() if self.syllables or n not in OF_TEXT}


def truth(samples: np.ndarray, syllables: float | None) -> Measures:
    """The labels' measures of a recording; without syllables rate and arousal mean nothing.

    Raises ValueError if too little of it is voiced.
    """
    return measured(samples, syllables or 1, speech_frames(samples))


def recordings(folder: Path, num: int | None) -> list[Clip]:
    """The manifest's recordings, or `num` of them of as many speakers as there are.

    Recordings without a voice are reported and left out.
    """
    clips, unvoiced = [], []
    for row in progress(chosen(rows_of(folder), num), "measuring the recordings"):
        samples = read(folder / row["file"])
        try:
            clips.append(clip_of(row, samples))
        except (ValueError, IndexError):
            unvoiced.append(row["file"])
    if unvoiced:
        print(f"{len(unvoiced)} recordings hold no voice, left out: {', '.join(unvoiced[:5])} ...")
    if not clips:
        raise SystemExit(f"{folder / MANIFEST} names no recording of a voice")
    return clips


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The manifest's lines. Raises SystemExit with one line about what is wrong with it."""
    file = folder / MANIFEST
    if not file.is_file():
        example = '{"file": "a.wav", "speaker": "x", "language": "en", "syllables": 12}'
        raise SystemExit(f"{file} is not there: it lists the recordings, one per line: {example}")
    rows = []
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            row["file"] = row.get("file") or row["wav"]
            found = (folder / row["file"]).is_file()
        except (ValueError, KeyError, TypeError, AttributeError):
            raise SystemExit(f'{file}, line {number}: no JSON object with "file"') from None
        if not found:
            raise SystemExit(f"{file}, line {number}: {row['file']} is not in {folder}")
        rows.append(row)
    return rows


def chosen(rows: Sequence[dict[str, Any]], num: int | None) -> list[dict[str, Any]]:
    """`num` rows, one of each speaker in turn; None takes all. Same rows, same choice."""
    by_speaker = defaultdict(list)
    for row in rows:
        by_speaker[str(row.get("speaker"))].append(row)
    chance = random.Random("people")
    speakers = [by_speaker[name] for name in sorted(by_speaker)]
    chance.shuffle(speakers)
    for own in speakers:
        chance.shuffle(own)
    turns = itertools.chain.from_iterable(itertools.zip_longest(*speakers))
    return [row for row in turns if row is not None][:num]


def clip_of(row: dict[str, Any], samples: np.ndarray) -> Clip:
    kind, _, joined_s = str(row.get("kind")).partition("-")
    seconds = len(samples) / SAMPLE_RATE
    length = next(f"{a} to {b} s" if b < 1e9 else f"over {a} s" for a, b in LENGTHS if seconds < b)
    known = {n: str(row.get(n) or "unknown") for n in ("speaker", "source", "language", "sex")}
    syllables = row.get("syllables")
    return Clip(
        row["file"],
        **known,
        syllables=syllables,
        samples=samples,
        measures=Measures(**own) if (own := row.get("measures")) else truth(samples, syllables),
        length=f"{joined_s} s, joined" if kind == "joined" else length,
    )
