"""Phrases and whole clips of some speakers, read from the shards of people.py and synthesis.py."""

import json
import random
from pathlib import Path
from typing import NamedTuple

import numpy as np

GROUPS = {"synthetic": 0.34, "zh": 0.28, "en": 0.20, "other": 0.18}  # how often each speaks


class Phrase(NamedTuple):
    """A stretch of a shard. `syllables` is None where no text is known, `speech` where the level
    says it."""

    mel: np.ndarray
    f0: np.ndarray
    start: int
    end: int
    syllables: float | None
    voice: str
    group: str
    natural: bool  # nothing was resynthesised
    heard: np.ndarray
    speech: np.ndarray | None
    density: np.ndarray | None  # syllables in each frame, as rate_tracks.py wrote them
    whole: bool = False  # a clip with the room around its speech

    def __len__(self) -> int:
        return self.end - self.start

    def parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Both mels side by side [n, 256], f0 [n], speech [n] or None."""
        at = slice(self.start, self.end)
        both = np.concatenate([self.mel[at], self.heard[at]], 1).astype(np.float32)
        speech = None if self.speech is None else self.speech[at] > 0
        return both, self.f0[at].astype(np.float32), speech

    def syllables_in(self) -> np.ndarray:
        """Syllables in each frame [n], nan where they were not counted."""
        if self.density is None:
            return np.full(len(self), np.nan, np.float32)
        return self.density[self.start : self.end].astype(np.float32)


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
        files = [listing.with_suffix(f".{name}.npy") for name in ("mel", "f0")]
        mel, f0 = (np.load(file, mmap_mode="r") for file in files)
        heard, speech = listing.with_suffix(".heard.npy"), listing.with_suffix(".speech.npy")
        heard = np.load(heard, mmap_mode="r") if heard.exists() else mel
        speech = np.load(speech, mmap_mode="r") if speech.exists() else None
        density = listing.with_suffix(".density.npy")
        density = np.load(density, mmap_mode="r") if density.exists() else None
        for row in json.loads(listing.read_text()):
            group, natural = row.get("group", "synthetic"), row.get("natural", False)
            place = (row["start"], row["end"], row["syllables"], row["voice"], group, natural)
            phrase = Phrase(mel, f0, *place, heard, speech, density, row.get("whole", False))
            held = self.whole if phrase.whole else self.sessions
            held.setdefault(row["session"], []).append(phrase)

    def draw(self, rng: random.Random) -> tuple[str, list[Phrase]]:
        """One session and its name: first its group by its share, then one of the group."""
        names = self.names
        if len(self.groups) > 1:
            there = [name for name in GROUPS if name in self.groups]
            names = self.groups[rng.choices(there, [GROUPS[name] for name in there])[0]]
        name = rng.choice(names)
        return name, self.sessions[name]
