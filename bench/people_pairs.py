"""Are two recordings that differ in one thing told apart? In: pairs. Out: rows.

strict: a higher level is said of the higher one; ties: the same level, or none; reversed: a lower
one, which must never happen. `others moved`: by how many levels a pair the other attributes differ,
arousal apart: it follows rate, pitch, variation, loudness and pauses by its definition.
"""

from __future__ import annotations

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
        found = say(
            mode, [sound for pair in pairs for sound in (pair.low, pair.high)], f"{mode}, pairs"
        )
        said = [
            (low.attributes, high.attributes)
            for low, high in zip(found[::2], found[1::2], strict=True)
        ]
        told = list(zip(pairs, said, strict=True))
        cases = [("all", "all"), *((name, size) for name in ATTRIBUTES for size in SIZES)]
        for name, size in cases:
            own = [
                (p, s) for p, s in told if name in ("all", p.attribute) and size in ("all", p.size)
            ]
            rows += (
                [{"mode": mode, "attribute": name, "size": size, **compared(own)}] if own else []
            )
    return rows


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
