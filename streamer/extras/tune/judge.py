"""Turns that were kept apart in; how many levels a model says right out. It speaks as it does for
everybody: through the engine, by the rules, in mode edge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import anyio
import numpy as np

from streamer.audio.file import AudioError, open_audio
from streamer.core.attributes import ATTRIBUTES
from streamer.core.audio.pcm import SAMPLE_RATE_HZ, Samples
from streamer.extras.tune.turn import LearntTurn
from streamer.progress import Bar
from streamer.recording import chunks_of

Said = list[dict[str, int | None]]


def say(directory: Path, turns: Sequence[LearntTurn], device: str, what: str) -> Said:
    """The levels that the model of `directory` says of each turn. Raises ModelError, AudioError."""
    return anyio.run(_say, directory, turns, device, what)


async def _say(directory: Path, turns: Sequence[LearntTurn], device: str, what: str) -> Said:
    from streamer.describer import Describer

    said: Said = []
    with Bar(what, len(turns)) as bar:
        async with Describer.open(mode="edge", edge=str(directory), device=device) as describer:
            for samples in samples_of(turns):
                found = await describer.describe((samples, SAMPLE_RATE_HZ))
                said.append(dict(found.attributes))
                bar.show(len(said), f"{len(said)} of {len(turns)}")
    return said


def samples_of(turns: Sequence[LearntTurn]) -> Iterator[Samples]:
    """Each turn's samples, cut as it was heard; turns of one file stand together, in order."""
    for file, some in groupby(turns, key=lambda turn: turn.file):
        with open_audio(file) as audio:
            chunks = chunks_of(audio)
            held = np.zeros(0, np.float32)
            begin = 0
            for turn in some:
                end = turn.begin + turn.num_samples
                while begin + len(held) < end:
                    if (chunk := next(chunks, None)) is None:
                        raise AudioError(file, "became shorter since it was listened to")
                    skipped = min(len(held), max(0, turn.begin - begin))
                    held = np.concatenate([held[skipped:], chunk])
                    begin += skipped
                yield held[turn.begin - begin : end - begin]


@dataclass(frozen=True, slots=True)
class Score:
    """Of one attribute, where it is known. Shares of `num` turns."""

    attribute: str
    num: int
    before: float
    after: float
    usual: float  # of always saying the level that is most frequent among them

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def scores(turns: Sequence[LearntTurn], before: Said, after: Said) -> list[Score]:
    """Of each attribute that is known of any turn, and "all": the mean over the attributes."""
    found = []
    for name in ATTRIBUTES:
        known = [i for i, turn in enumerate(turns) if turn.levels[name] is not None]
        if not known:
            continue
        true = [turns[i].levels[name] for i in known]
        shares = [_right(name, known, true, said) for said in (before, after)]
        usual = max(map(true.count, set(true))) / len(true)
        found.append(Score(name, len(known), shares[0], shares[1], usual))
    mean = {n: float(np.mean([getattr(s, n) for s in found])) for n in ("before", "after", "usual")}
    return [*found, Score("all", len(turns), **mean)]


def _right(name: str, known: Sequence[int], true: Sequence[int | None], said: Said) -> float:
    return float(np.mean([said[i][name] == level for i, level in zip(known, true, strict=True)]))
