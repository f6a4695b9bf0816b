"""Who is learnt from, and who is kept apart. In: turns, who speaks. Out: two lists of turns.

No speaker is on both sides, nor any recording. A name's side depends on the name and the seed
alone, so a run that goes on, or one with more recordings, keeps people where they were.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.declare import ConfigError
from streamer.extras.tune.turn import LearntTurn, TuneError, as_bytes

FILES = ("file", "wav", "path")  # what a table may call the recording


@dataclass(frozen=True)
class Data:
    """Turns to learn from, turns kept apart, and who speaks in a file."""

    learnt: Sequence[LearntTurn]
    held: Sequence[LearntTurn]
    who: Callable[[str], str]

    @property
    def num_speakers(self) -> tuple[int, int]:
        """(learnt from, kept apart)"""
        learnt, held = ({self.who(turn.file) for turn in side} for side in (self.learnt, self.held))
        return len(learnt), len(held)

    @property
    def hours(self) -> tuple[float, float]:
        """(learnt from, kept apart)"""
        learnt, held = (sum(turn.num_samples for turn in side) for side in (self.learnt, self.held))
        return learnt / SAMPLE_RATE_HZ / 3600, held / SAMPLE_RATE_HZ / 3600

    def told(self) -> str:
        """One line."""
        nums = (len(self.learnt), len(self.held))
        learnt, held = (
            f"{n} turns of {speakers} speakers, {hours:.2f} h"
            for n, speakers, hours in zip(nums, self.num_speakers, self.hours, strict=True)
        )
        return f"learns from {learnt}; kept apart are {held}"


def split(
    turns: Sequence[LearntTurn], who: Callable[[str], str], held: float, seed: int
) -> tuple[list[LearntTurn], list[LearntTurn]]:
    """(to learn from, held out): about a share `held` of the speakers is held out, one at least.
    Raises TuneError where there are not two speakers."""
    names = sorted({who(turn.file) for turn in turns}, key=lambda name: _place(name, seed))
    if len(names) < 2:
        told = "all recordings are of one speaker, so none can be held out"
        raise TuneError(f"{told}; give those of others too, or --speakers file")
    apart = {name for name in names if _place(name, seed) < held} or {names[0]}
    apart -= {names[-1]} if len(apart) == len(names) else set()
    sides: tuple[list[LearntTurn], list[LearntTurn]] = ([], [])
    for turn in turns:
        sides[who(turn.file) in apart].append(turn)
    return sides


def _place(name: str, seed: int) -> float:
    """Where a name stands between 0 and 1."""
    digest = hashlib.blake2b(as_bytes(f"{seed}/{name}"), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


def speakers(how: str) -> Callable[[str], str]:
    """Who speaks in a file. how: "file", "folder", or a table. Raises ConfigError."""
    if how == "file":
        return lambda file: file
    if how == "folder":
        return lambda file: str(Path(file).parent)
    return _of_table(Path(how))


def _of_table(path: Path) -> Callable[[str], str]:
    """A recording that the table does not name counts as a speaker of its own."""
    try:
        rows = list(_table(path))
        column = next(name for name in FILES if name in rows[0])
        known = {str((path.parent / row[column]).resolve()): row["speaker"] for row in rows}
    except (OSError, ValueError, KeyError, TypeError, IndexError, StopIteration):
        way = "give file, folder, or a table (.csv or .jsonl) with the columns file and speaker"
        raise ConfigError(f"--speakers {path} cannot be read as a table; {way}") from None
    return lambda file: str(known.get(str(Path(file).resolve()), file))


def _table(path: Path) -> Sequence[Mapping[str, Any]]:
    text = path.read_text("utf-8-sig")  # a spreadsheet begins it with a mark
    if path.suffix.lower() == ".csv":
        return list(csv.DictReader(text.splitlines()))
    return [json.loads(line) for line in text.splitlines() if line.strip()]
