"""Phrases and whole clips of some speakers, read from the shards of people.py and synthesis.py."""

import random
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipelines.embedded.synthesis import shard_at

GROUPS = {"synthetic": 0.34, "zh": 0.28, "en": 0.20, "other": 0.18}  # how often each speaks


class Phrase(NamedTuple):
    """A stretch of a shard. `syllables` is None where no text is known."""

    arrays: dict[str, np.ndarray]  # of the shard, by name
    start: int
    end: int
    syllables: float | None
    session: str
    voice: str
    group: str = "synthetic"
    natural: bool = False  # nothing was resynthesised
    whole: bool = False  # a clip with the room around its speech

    def __len__(self) -> int:
        return self.end - self.start

    @property
    def is_of_people(self) -> bool:
        """Whether speech was detected; all of a synthetic phrase is speech."""
        return "speech" in self.arrays

    def parts(self) -> tuple[np.ndarray, np.ndarray]:
        """Both mels side by side [n, 256], and tracks [n, 4]: f0, the phrase's syllables per second,
        speech, and syllables as rate_tracks.py wrote them, nan where they were not counted."""
        speech = self.frames("speech", 1) > 0
        tempo = 100 * (self.syllables or 0) / max(1, speech.sum())
        columns = [self.frames("f0"), tempo * speech, speech, self.frames("density", np.nan)]
        mels = np.concatenate([self.frames("mel"), self.frames("heard")], 1)
        return mels, np.stack(columns, 1).astype(np.float32)

    def frames(self, name: str, otherwise: float | None = None) -> np.ndarray:
        """An array of the shard here, or a constant if the shard has none of that name."""
        if name not in self.arrays and otherwise is not None:
            return np.full(len(self), otherwise, np.float32)
        return self.arrays[name][self.start : self.end].astype(np.float32)


class Corpus:
    """Sessions of phrases, memory-mapped from the shards of some folders."""

    def __init__(self, *folders: Path) -> None:
        self.sessions: dict[str, list[Phrase]] = {}
        self.whole: dict[str, list[Phrase]] = {}  # clips as they were recorded, by session
        self.groups: dict[str, list[str]] = {}
        for listing in (path for folder in folders for path in sorted(folder.glob("*.json"))):
            self._add(listing)
        for name, phrases in self.sessions.items():
            self.groups.setdefault(phrases[0].group, []).append(name)
        self.names = sorted(self.sessions)

    def _add(self, listing: Path) -> None:
        rows, arrays = shard_at(listing)
        for phrase in (Phrase(arrays, **row) for row in rows):
            held = self.whole if phrase.whole else self.sessions
            held.setdefault(phrase.session, []).append(phrase)

    def draw(self, rng: random.Random) -> tuple[str, list[Phrase]]:
        """One session and its name: first its group by its share, then one of the group."""
        names = self.names
        if len(self.groups) > 1:
            there = [name for name in GROUPS if name in self.groups]
            names = self.groups[rng.choices(there, [GROUPS[name] for name in there])[0]]
        name = rng.choice(names)
        return name, self.sessions[name]
