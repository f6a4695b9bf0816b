"""Does a sentence contradict its own measures? In: recorded people. Out: how often, by how much.

    python -m bench.contradictions --data DIR [--num 600] [--mode gated] [--keep]

DIR: recordings of held-out people with manifest.jsonl, as `python -m pipelines.embedded.recordings
--held-out DIR` writes them. The sentence is the models'; the measures beside it are signal
processing on the same recording (docs/measures.md). Each measure is put into a level by the bounds
that the labels have, and held against the level said. So a difference is an error of the models or
one of the measures: nothing here says whose. Arousal has no measure of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import numpy as np

from bench.common import progress, table, write
from bench.keep import options_of
from bench.people_clips import chosen, joined_s, rows_of
from pipelines.embedded.labels import BOUNDS
from streamer import Describer, Description
from streamer.core.decoding.plan import MODES

MEASURES = {
    "rate": "rate_syllables_per_s",
    "pitch": "pitch_median_hz",
    "variation": "pitch_sd_semitones",
    "loudness": "level_dbfs",
    "pauses": "pause_share",
    "timbre": "timbre_db",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--num", type=int, default=600)
    parser.add_argument("--mode", choices=MODES, default="gated")
    options = options_of(parser)
    whole = [row for row in rows_of(options.data) if joined_s(row) is None]
    files = [options.data / row["file"] for row in chosen(whole, options.num)]
    apart = [gaps_of(found) for found in anyio.run(described, files, options.mode)]
    rows = [*by_attribute(apart), by_sentence(apart)]
    print(f"{len(apart)} recordings, mode {options.mode}\n")
    print(table(list(rows[0]), [list(row.values()) for row in rows]))
    print("\nwritten:", write("contradictions", [{"mode": options.mode, **row} for row in rows]))


async def described(files: Sequence[Path], mode: Any) -> list[Description]:
    """Those in which somebody speaks, with measures."""
    async with Describer.open(mode=mode) as describer:
        found = [
            await describer.describe(str(file), measures=True)
            for file in progress(files, "describing")
        ]
    return [one for one in found if one.stop_reason != "no_speech"]


def gaps_of(found: Description) -> dict[str, int]:
    """attribute -> levels between what is said and what is measured, where both are known."""
    return {
        name: abs(said - level)
        for name, level in measured_levels(found)
        if (said := found.attributes[name]) is not None
    }


def measured_levels(found: Description) -> Iterator[tuple[str, int]]:
    """The level that the labels' bounds give each measure."""
    for name, measure in MEASURES.items():
        value = getattr(found.measures, measure)
        if value is not None:
            yield name, int(np.searchsorted(BOUNDS[name], value))


def by_attribute(apart: Sequence[dict[str, int]]) -> list[dict[str, Any]]:
    return [row_of(name, [gaps[name] for gaps in apart if name in gaps]) for name in MEASURES]


def by_sentence(apart: Sequence[dict[str, int]]) -> dict[str, Any]:
    """Of each sentence the attribute that is furthest off."""
    return row_of("the sentence as a whole", [max(gaps.values()) for gaps in apart if gaps])


def row_of(name: str, gaps: Sequence[int]) -> dict[str, Any]:
    return {
        "of": name,
        "n": len(gaps),
        "agrees": sum(gap == 0 for gap in gaps) / len(gaps),
        "one level apart": sum(gap == 1 for gap in gaps) / len(gaps),
        "more": sum(gap > 1 for gap in gaps) / len(gaps),
    }


if __name__ == "__main__":
    main()
