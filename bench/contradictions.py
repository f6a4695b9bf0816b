"""Does a sentence contradict its own measures? In: recorded people. Out: how often, by how much.

    python -m bench.contradictions --data DIR [--num 600] [--mode gated] [--free] [--keep]

DIR: recordings of held-out people with manifest.jsonl, as `python -m pipelines.embedded.recordings
--held-out DIR` writes them. The sentence is the models'; the measures beside it are signal
processing on the same recording (docs/measures.md). Each measure is put into a level by the bounds
that the labels have, and held against the level said. Where the two differ, the labels' own measure
(Praat, the syllables of the text) says which of them was right, and how often the words are right.
Arousal has no measure of its own; a measure with a warning says nothing. --free: the words as they
are where nobody asks for measures, so that no rule holds them to any.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio

from bench.common import mean, progress, table_of, write
from bench.keep import options_of
from bench.people_clips import chosen, clip_of, joined_s, read, rows_of
from streamer import Describer, Description
from streamer.core.decoding.plan import MODES
from streamer.core.measures.levels import MEASURES, levels_of
from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.model.audio.measurer import TurnMeasurer

Known = Mapping[str, tuple[int, int]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--num", type=int, default=600)
    parser.add_argument("--mode", choices=MODES, default="gated")
    parser.add_argument("--free", action="store_true")
    options = options_of(parser)
    whole = [row for row in rows_of(options.data) if joined_s(row) is None]
    listed = chosen(whole, options.num)
    files = [options.data / row["file"] for row in listed]
    found = anyio.run(described, files, options.mode, not options.free)
    known = [compared(one, file) for one, file in zip(found, files, strict=True)]
    truths = [true_levels(row, file) for row, file in zip(listed, files, strict=True)]
    rows = [row_of(name, known, truths, [name]) for name in MEASURES]
    rows.append(row_of("all six", known, truths, list(MEASURES)))
    rows.append(by_sentence(known))
    for row, names in zip(rows, [*([name] for name in MEASURES), list(MEASURES)], strict=False):
        row["words right"] = right(found, truths, names)
    print(f"{len(known)} recordings, mode {options.mode}\n")
    print(table_of(rows))
    arm = {"mode": options.mode, "words": "free" if options.free else "held to the measures"}
    print("\nwritten:", write("contradictions", [{**arm, **row} for row in rows]))


async def described(files: Sequence[Path], mode: Any, measures: bool) -> list[Description]:
    async with Describer.open(mode=mode) as describer:
        return [
            await describer.describe(str(file), measures=measures)
            for file in progress(files, "describing")
        ]


def true_levels(row: dict[str, Any], file: Path) -> Mapping[str, int | None]:
    """What the labels say; nothing where they find too little voice."""
    try:
        return clip_of(row, read(file)).levels
    except (ValueError, IndexError):
        return {}


def compared(found: Description, file: Path) -> dict[str, tuple[int, int]]:
    """attribute -> (the level said, the level measured), where both are known."""
    measured = levels_of(found.measures or measures_of(file))
    return {
        name: (said, level)
        for name in MEASURES
        if (level := measured[name]) is not None and (said := found.attributes[name]) is not None
    }


def measures_of(file: Path) -> SpeechMeasures:
    measurer = TurnMeasurer()
    measurer.push(read(file))
    return measurer.finish()


def right(
    found: Sequence[Description], truths: Sequence[Mapping[str, int | None]], names: Sequence[str]
) -> float:
    """How often the level said is the labels', of those that both know."""
    return mean(
        float(one.attributes[name] == true[name])
        for one, true in zip(found, truths, strict=True)
        for name in names
        if true.get(name) is not None and one.attributes[name] is not None
    )


def row_of(
    group: str,
    known: Sequence[Known],
    truths: Sequence[Mapping[str, int | None]],
    names: Sequence[str],
) -> dict[str, Any]:
    """How far apart the two are; of those apart whose truth is known, who was right."""
    told = [
        (*own[name], true.get(name))
        for own, true in zip(known, truths, strict=True)
        for name in names
        if name in own
    ]
    judged = [(s, m, true) for s, m, true in told if s != m and true is not None]
    return {
        **shares(group, [abs(said - measured) for said, measured, _ in told]),
        "sentence right": mean(float(said == true) for said, _, true in judged),
        "measure right": mean(float(measured == true) for _, measured, true in judged),
    }


def by_sentence(known: Sequence[Known]) -> dict[str, Any]:
    """Of each sentence the attribute that is furthest off."""
    furthest = [
        max(abs(said - measured) for said, measured in own.values()) for own in known if own
    ]
    beside = {"sentence right": "", "measure right": "", "words right": ""}
    return {**shares("the sentence", furthest), **beside}


def shares(group: str, gaps: Sequence[int]) -> dict[str, Any]:
    return {
        "of": group,
        "n": len(gaps),
        "agree": mean(float(gap == 0) for gap in gaps),
        "one level apart": mean(float(gap == 1) for gap in gaps),
        "more": mean(float(gap > 1) for gap in gaps),
    }


if __name__ == "__main__":
    main()
