"""Recorded people to measure with. In: a folder with a manifest. Out: samples and their truth.

manifest.jsonl holds one JSON object a line: file (or wav; relative to the folder), and where they
are known speaker, source, language, sex and syllables (of its text); kind is "joined-30" of a turn
joined to 30 s. The truth is what pipelines/embedded/labels.py measures on the recording.
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
import soundfile
import soxr

from bench.common import progress
from pipelines.embedded.labels import Measures, measure
from pipelines.embedded.mel import raw_log_mel
from pipelines.embedded.speak import SAMPLE_RATE
from pipelines.embedded.speech import speech_frames
from pipelines.embedded.synthesis import f0_track

MANIFEST = "manifest.jsonl"
# Unknown without the number of syllables: arousal sums the rate and others.
OF_TEXT = ("rate", "arousal")
LENGTHS = ((0, 3), (3, 6), (6, 15), (15, 1e9))  # seconds, of recordings as they are


@dataclass(frozen=True)
class Clip:
    """One recording. samples [n] float32 at 16 kHz; syllables: None where no text is known."""

    name: str
    speaker: str
    source: str
    language: str
    sex: str
    syllables: float | None
    samples: np.ndarray
    measures: Measures
    length: str  # the group of lengths that it belongs to

    @property
    def is_joined(self) -> bool:
        return self.length.endswith("joined")

    @property
    def levels(self) -> dict[str, int]:
        """The true level of every attribute that is known."""
        known = self.measures.levels()
        return (
            known
            if self.syllables
            else {name: level for name, level in known.items() if name not in OF_TEXT}
        )


def truth(samples: np.ndarray, syllables: float | None) -> Measures:
    """The labels' own measures of a recording; without syllables its rate and arousal mean nothing.

    Raises ValueError where too little of it is voiced.
    """
    mel = raw_log_mel(samples)
    return measure(mel, f0_track(samples, len(mel)), syllables or 1, speech_frames(samples))


def sound_measures(samples: np.ndarray) -> Measures:
    """The same where loudness and timbre alone are wanted: they need no pitch, so any will do."""
    mel = raw_log_mel(samples)
    return measure(mel, np.full(len(mel), 100.0, np.float32), 1, speech_frames(samples))


def recordings(folder: Path, num: int | None, num_joined: int) -> list[Clip]:
    """The manifest's recordings, or `num` of as many speakers as there are, then joined turns.

    Those that Praat finds no voice in are told and left out.
    """
    kinds = defaultdict(list)
    for row in rows_of(folder):
        kinds[joined_s(row)].append(row)
    rows = chosen(kinds.pop(None, []), num)
    rows += [row for seconds in sorted(kinds) for row in chosen(kinds[seconds], num_joined)]
    clips, unvoiced = [], []
    for row in progress(rows, "measuring the recordings"):
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
    """The manifest's lines. Ends the program with one line about what is wrong with it."""
    file = folder / MANIFEST
    if not file.is_file():
        raise SystemExit(
            f"{file} is not there: it lists the recordings, a line each, such as "
            '{"file": "a.wav", "speaker": "x", "language": "en", "syllables": 12}'
        )
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


def joined_s(row: dict[str, Any]) -> int | None:
    """The seconds that a turn was joined to; None of a recording as it is."""
    kind, _, seconds = str(row.get("kind")).partition("-")
    return int(seconds) if kind == "joined" and seconds.isdigit() else None


def chosen(rows: Sequence[dict[str, Any]], num: int | None) -> list[dict[str, Any]]:
    """`num` rows, of every speaker in turn, the same for the same rows; all for None."""
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


def read(file: Path) -> np.ndarray:
    """A file's samples, mono, at 16 kHz."""
    samples, rate = soundfile.read(file, dtype="float32", always_2d=True)
    mono = samples.mean(1)
    return (
        mono if rate == SAMPLE_RATE else soxr.resample(mono, rate, SAMPLE_RATE).astype(np.float32)
    )


def clip_of(row: dict[str, Any], samples: np.ndarray) -> Clip:
    seconds, joined_to = len(samples) / SAMPLE_RATE, joined_s(row)
    own = next(f"{a} to {b} s" if b < 1e9 else f"over {a} s" for a, b in LENGTHS if seconds < b)
    told = {
        name: str(row.get(name) or "unknown") for name in ("speaker", "source", "language", "sex")
    }
    syllables = row.get("syllables")
    return Clip(
        row["file"],
        **told,
        syllables=syllables,
        samples=samples,
        measures=truth(samples, syllables),
        length=own if joined_to is None else joined_name(joined_to),
    )


def joined_name(seconds: int) -> str:
    return f"{seconds} s, joined"
