"""Are two recordings that differ in one thing told apart? In: pairs. Out: rows.

strict: a higher level is said of the higher one; ties: the same level, or none; reversed: a lower
one, which must never happen. `others moved`: by how many levels a pair the other attributes differ,
arousal apart: it follows rate, pitch, variation, loudness and pauses by its definition.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bench.common import mean
from bench.people_variants import ATTRIBUTES, SIZES, Pair
from pipelines.embedded.labels import ATTRIBUTES as ALL
from streamer import Description

Row = dict[str, Any]
Say = Callable[[str, Sequence[np.ndarray], str], list[Description]]
Levels = Mapping[str, int | None]


def pair_rows(pairs: Sequence[Pair], modes: Sequence[str], say: Say) -> list[Row]:
    """A row for every mode, attribute and size, and one for all together."""
    rows = []
    for mode in modes:
        sounds = [sound for pair in pairs for sound in (pair.low, pair.high)]
        levels = [found.attributes for found in say(mode, sounds, f"{mode}, pairs")]
        told = list(zip(pairs, zip(levels[::2], levels[1::2], strict=True), strict=True))
        for name, size in [("all", "all"), *itertools.product(ATTRIBUTES, SIZES)]:
            if own := [case for case in told if is_of(case[0], name, size)]:
                rows.append({"mode": mode, "attribute": name, "size": size, **compared(own)})
    return rows


def is_of(pair: Pair, attribute: str, size: str) -> bool:
    return attribute in ("all", pair.attribute) and size in ("all", pair.size)


def compared(told: Sequence[tuple[Pair, tuple[Levels, Levels]]]) -> Row:
    signs = [sign(said[0][pair.attribute], said[1][pair.attribute]) for pair, said in told]
    return {
        "pairs": len(told),
        "strict": mean(float(s > 0) for s in signs),
        "ties": mean(float(s == 0) for s in signs),
        "reversed": sum(s < 0 for s in signs),
        "others moved": mean(moved(pair, said) for pair, said in told),
        "others moved, labels": mean(moved(pair, pair.labels) for pair, _ in told),
        "arousal moved": mean(shift(said, "arousal") for _, said in told),
    }


def sign(low: int | None, high: int | None) -> int:
    return 0 if low is None or high is None else int(np.sign(high - low))


def moved(pair: Pair, levels: tuple[Levels, Levels]) -> int:
    """Levels by which the attributes differ that were not changed."""
    return sum(shift(levels, name) for name in ALL if name not in (pair.attribute, "arousal"))


def shift(levels: tuple[Levels, Levels], name: str) -> int:
    low, high = (of.get(name) for of in levels)
    return 0 if low is None or high is None else abs(high - low)
