"""How good are the sentences, and what does each mode and each rule buy? In: held-out clips. Out:
tables, JSON lines.

`python -m bench.quality [--num 66]`. The arms: edge, cloud, gated fluent, gated quality, exact, and
the `generate` drafter without rules, which is where this project started. Then each rule is
switched off in turn on a STRESS set, where failures occur. That set is an edge whose weights are
blurred by seeded noise (it stands for an under-trained one), turns beyond max_turn_s, and T = 1. On
clean clips the rules hardly fire, and must change nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.arms import Arm, blurred, longer, models_of, run
from bench.clips import CACHE, Clip, held_out
from bench.common import mean, options_of, progress, rightness, table_of, write
from bench.sentence_quality import measure
from streamer import Description
from streamer.assembly import Models
from streamer.core.rules.settings import Rules

Row = dict[str, Any]

# Each rule alone switched off; what is left is the default.
RULES_OFF: dict[str, dict[str, Any]] = {
    "none": {},
    "repetition penalty": {"repetition_penalty": 1.0},
    "adjacency": {"adjacency": False},
    "n-gram": {"ngram": 0},
    "comma gap": {"comma_gap": 0},
    "end gap": {"end_gap": 0},
    "min_new_tokens": {"min_new_tokens": 0},
    "loop, local": {"loop_local": False},
    "loop, global": {"loop_global": False},
    "never emitted": {"clean": False},
}
ALL_OFF = {"form": ""} | {name: off for each in RULES_OFF.values() for name, off in each.items()}
ARMS: dict[str, dict[str, Any]] = {
    "edge": {"mode": "edge"},
    "cloud": {"mode": "cloud"},
    "gated fluent": {"mode": "gated", "preset": "fluent"},
    "gated quality": {"mode": "gated", "preset": "quality"},
    "exact": {"mode": "exact"},
    "seeds' start": {
        "mode": "edge",
        "draft": "generate",
        "rules": Rules(**ALL_OFF),
        "min_new_tokens": 0,
    },
}
# keys of a row, as the tables show them: of sentences, then of modes
SENTENCES = ("accuracy", "density_in_range", "density_over_40", "repeated_2", "repeated_3")
SENTENCES += ("adjacent", "one_sentence")
MODES = ("call_rate", "accepted_per_uploaded", "wasted_per_drafted", "verified_share")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    told = "clips, shared among 3, 10, 30 and 60 s"
    parser.add_argument("--num", type=int, default=66, help=told)
    options = options_of(parser)
    num = -(-options.num // 4)
    clips = [clip for seconds in (3, 10, 30, 60) for clip in held_out(num, seconds)]
    runs = {name: run_all(models_of(**arm), clips, name) for name, arm in ARMS.items()}
    rows = [summarise(name, models_of(**ARMS[name]), clips, found) for name, found in runs.items()]
    print(f"\n{len(clips)} held-out clips of 3, 10, 30 and 60 s\n")
    print(table_of(rows, ("arm", *SENTENCES, *MODES)))
    stressed = stress(clips)
    clean = clean_changes(clips)
    told = "changed: clean clips whose ids change without the rule"
    print(f"\nEach rule off in turn, on the STRESS set; {told}\n")
    columns = {"arm": "rule off"} | {name: name for name in SENTENCES}
    columns |= {"loops": "stopped by loop", "changed": "changed"}
    print(table_of([r | {"changed": clean[r["arm"]]} for r in stressed], columns))
    print("\nwritten:", write("quality", [*rows, *({"set": "stress", **row} for row in stressed)]))


def run_all(models: Arm, clips: Sequence[Clip], what: str) -> list[Description]:
    return [run(models, clip.samples) for clip in progress(clips, what)]


def summarise(
    name: str, models: Models, clips: Sequence[Clip], runs: Sequence[Description]
) -> dict[str, Any]:
    """The means over clips of what docs/decoding.md wants counted."""
    vocabulary = models.first.vocabulary
    found = [measure(vocabulary, r.ids) for r in runs]
    drafted = sum(c.n_drafted for c in runs)
    uploaded = sum(c.n_uploaded for c in runs)
    calls = sum(c.cloud_calls for c in runs)
    return {
        "arm": name,
        "num_clips": len(clips),
        "accuracy": mean(rightness(c.levels, r) for c, r in zip(clips, runs, strict=True)),
        "density_in_range": mean(0.10 <= q.density <= 0.25 for q in found),
        "density_over_40": sum(q.density > 0.4 for q in found),
        "repeated_2": mean(q.repeated_bigrams for q in found),
        "repeated_3": mean(q.repeated_trigrams for q in found),
        "adjacent": sum(q.adjacent_repeats for q in found),
        "one_sentence": mean(q.one_sentence for q in found),
        "call_rate": calls / max(1, sum(c.blocks or c.cloud_calls for c in runs)),
        "accepted_per_uploaded": ratio(sum(c.n_accepted for c in runs), uploaded),
        "wasted_per_drafted": ratio(sum(c.n_wasted for c in runs), drafted),
        "verified_share": mean(c.verified_share for c in runs),
        "loops": sum(r.stop_reason == "loop" for r in runs),
    }


def ratio(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def stress(clips: Sequence[Clip]) -> list[Row]:
    """Each rule off in turn where sentences go wrong."""
    some = clips[:: max(1, len(clips) // 12)]
    long = [dataclasses.replace(c, samples=np.tile(c.samples, 9)[: 90 * 16_000]) for c in clips[:3]]
    bad, beyond = str(blurred(CACHE / "blurred")), str(longer(CACHE / "longer"))
    rows = []
    for name, change in RULES_OFF.items():
        options = without(change)
        arms: list[tuple[dict[str, Any], Sequence[Clip]]] = [
            ({"edge": bad}, some),
            ({"edge": beyond}, long),
            ({"edge": bad, "temperature": 1.0, "seed": 1}, some),
        ]
        runs: list[Description] = []
        heard: list[Clip] = []
        for arm, which in arms:
            models = models_of(mode="edge", **options, **arm)
            runs += run_all(models, which, f"stress, {name}")
            heard += which
        rows.append(summarise(name, models, heard, runs))
    return rows


def without(change: dict[str, Any]) -> dict[str, Any]:
    """Config's keywords for the rules with this change; one of its keys is Config's own."""
    own = {name: value for name, value in change.items() if name == "min_new_tokens"}
    rules = {name: value for name, value in change.items() if name not in own}
    return {"rules": dataclasses.replace(Rules(), **rules), **own}


def clean_changes(clips: Sequence[Clip]) -> dict[str, int]:
    """On clean clips: how many sentences change when a rule is switched off."""
    found: dict[str, list[tuple[int, ...]]] = {}
    for name, change in RULES_OFF.items():
        models = models_of(mode="edge", **without(change))
        found[name] = [r.ids for r in run_all(models, clips, f"clean, {name}")]
    return {
        name: sum(a != b for a, b in zip(ids, found["none"], strict=True))
        for name, ids in found.items()
    }


if __name__ == "__main__":
    main()
