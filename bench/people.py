"""Are the sentences right on recorded people? In: their recordings. Out: tables, rows, plots.

`python -m bench.people --data DIR [--noise DIR] [--num 100] [--only table|pairs|robust]`. DIR holds
manifest.jsonl (bench/people_clips.py). table: every attribute against what the labels measure, by
mode, language, source, sex and length, with turns of 10, 30 and 60 s joined of one speaker's
recordings. pairs: one recording twice, one thing changed. robust: the same speech in noise, a room,
a codec. Noises that hold no speech come with --noise.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.common import progress, table, table_of, write
from bench.keep import options_of
from bench.people_changes import CHANGES
from bench.people_clips import Clip, recordings
from bench.people_joined import joined
from bench.people_pairs import pair_rows
from bench.people_plots import plot_confusion, plot_pairs, plot_robust, plot_table
from bench.people_robust import noise_rows, robust_rows
from bench.people_table import constant_row, gap_rows, order_rows, shown, table_rows
from bench.people_variants import pairs_of
from pipelines.embedded.labels import ATTRIBUTES
from pipelines.embedded.speak import SAMPLE_RATE
from streamer import Describer, Description

PARTS = ("table", "pairs", "robust")
MODES = ("edge", "cloud", "gated", "exact")
# Pairs, changes and noises are told of these alone: the other modes say what one of them says.
TOLD = ("edge", "cloud")
JOINED_S = (10, 30, 60)
# Pairs and changes are made of recordings between these lengths.
MIN_S = 2.0
MAX_S = 10.0
Say = Callable[[str, Sequence[np.ndarray], str], list[Description]]


def main() -> None:
    options = parsed()
    say = speaker(edge=options.edge, cloud=options.cloud)
    if options.data is not None:
        with_table = options.only in (None, "table")
        clips = recordings(options.data, needed(options), options.joined if with_table else 0)
        print(f"{len(clips)} recordings of {len({(c.source, c.speaker) for c in clips})} people")
        ordinary = [
            clip
            for clip in clips
            if not clip.is_joined and MIN_S <= len(clip.samples) / SAMPLE_RATE <= MAX_S
        ]
        if with_table:
            run_table(clips, options.joined, say, options.name)
        if options.only in (None, "pairs"):
            run_pairs(ordinary[: options.pairs], say, options.name)
        if options.only in (None, "robust"):
            changes = options.change or tuple(CHANGES)
            run_robust(ordinary[: options.robust], changes, say, options.name)
    if options.noise is not None:
        run_noise(options.noise, say, options.name)


def needed(options: argparse.Namespace) -> int | None:
    """How many recordings are measured: for pairs or changes alone, enough for ordinary ones."""
    if options.only in (None, "table"):
        return options.num
    enough = 2 * (options.pairs if options.only == "pairs" else options.robust)
    return min(enough, options.num or enough)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a folder of recordings and their manifest.jsonl")
    parser.add_argument("--noise", type=Path, help="a folder of recordings without speech")
    parser.add_argument(
        "--num",
        type=int,
        help="recordings of --data, of as many speakers as there are; default all",
    )
    parser.add_argument("--only", choices=PARTS, help="one part of the three")
    parser.add_argument(
        "--joined",
        type=int,
        default=25,
        help="turns of 10, 30 and 60 s each: the manifest's, or made",
    )
    parser.add_argument(
        "--pairs", type=int, default=40, help="recordings that pairs are made of, twelve of each"
    )
    parser.add_argument("--robust", type=int, default=60, help="recordings whose sound is changed")
    told = "of their sound, again for each; default all"
    parser.add_argument("--change", action="append", choices=CHANGES, help=told)
    parser.add_argument(
        "--edge", default="embedded", help="the edge model, as of `streamer describe`"
    )
    parser.add_argument("--cloud", default="embedded", help="the cloud model")
    parser.add_argument("--name", default="people", help="of the files that are written")
    options = options_of(parser)
    if options.data is None and options.noise is None:
        parser.error(
            "give --data DIR, a folder of recordings with a manifest.jsonl, or --noise DIR"
        )
    return options


def speaker(**models: str) -> Say:
    """What describes sounds at 16 kHz in a mode, by the public API."""

    async def describe_all(mode: str, sounds: Sequence[np.ndarray], what: str) -> list[Description]:
        async with Describer.open(mode=mode, **models) as describer:
            return [
                await describer.describe((sound, SAMPLE_RATE)) for sound in progress(sounds, what)
            ]

    return lambda mode, sounds, what: asyncio.run(describe_all(mode, sounds, what))


def run_table(clips: Sequence[Clip], num_joined: int, say: Say, name: str) -> None:
    every = list(clips)
    if not any(clip.is_joined for clip in clips):
        for seconds in JOINED_S:
            every += joined(clips, seconds, num_joined)
    said = {mode: say(mode, [clip.samples for clip in every], mode) for mode in MODES}
    rows, gaps, orders = table_rows(every, said), gap_rows(every, said), order_rows(every, said)
    whole = [row for row in rows if row["by"] == "all"]
    print("\nexact / within one / bias\n")
    header = ("mode", *ATTRIBUTES, "mean exact", "accepted / uploaded", "called no speech")
    constant = ("most frequent level", *constant_row(whole[0]), "", "", "")
    print(table(header, [*map(in_all, whole), constant]))
    print("\nBy group\n")
    header = ("group", "mode", "clips", "people", *ATTRIBUTES, "mean exact", "called no speech")
    print(table(header, [grouped(r) for r in rows if r["by"] != "all" and r["mode"] in TOLD]))
    print_rows("Mean exact against the edge's, clip by clip", gaps)
    print_rows("The level of rate against the true syllables per second", orders)
    found = [{"of": "table", **row} for row in rows] + [{"of": "gap", **row} for row in gaps]
    found += [{"of": "order", **row} for row in orders]
    print(
        "\nwritten:", write(name, found), plot_table(rows, name), plot_confusion(every, said, name)
    )


def in_all(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["mode"], *shown(row), row["mean"], row["accepted / uploaded"], missed(row)


def grouped(row: dict[str, Any]) -> tuple[Any, ...]:
    group = f"{row['by']} {row['group']}"
    counts = (row["clips"], row["speakers"])
    return group, row["mode"], *counts, *shown(row), row["mean"], missed(row)


def missed(row: dict[str, Any]) -> str:
    return f"{row['called no speech']} of {row['of clips >= 1.5 s']}"


def run_pairs(clips: Sequence[Clip], say: Say, name: str) -> None:
    pairs, missing = pairs_of(clips)
    if not pairs:
        raise SystemExit(
            f"of {len(clips)} recordings of {MIN_S:g} to {MAX_S:g} s no pair could be made"
        )
    rows = pair_rows(pairs, TOLD, say)
    print_rows(f"Pairs made of {len(clips)} recordings; {missing} could not be made", rows)
    print("\nwritten:", write(f"{name}_pairs", rows), plot_pairs(rows, name))


def run_robust(clips: Sequence[Clip], changes: Sequence[str], say: Say, name: str) -> None:
    if not clips:
        raise SystemExit(
            f"there are no recordings of {MIN_S:g} to {MAX_S:g} s to change the sound of"
        )
    rows = robust_rows(clips, TOLD, say, changes)
    print_rows("Levels that change against the clean recording", rows)
    print("\nwritten:", write(f"{name}_robust", rows), plot_robust(rows, name))


def run_noise(folder: Path, say: Say, name: str) -> None:
    rows = noise_rows(folder, TOLD, say)
    print_rows("Sounds that hold no speech", rows)
    print("\nwritten:", write(f"{name}_noise", rows))


def print_rows(title: str, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        print(f"\n{title}\n\n{table_of(rows)}")


if __name__ == "__main__":
    main()
