"""How right the sentences are. In: clips and what each mode said of them. Out: rows.

An attribute that is not said is wrong. Bias is the mean of level said minus level there was.
`constant` is what saying the most frequent level would reach.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from bench.common import mean
from bench.people_clips import Clip
from pipelines.embedded.labels import ATTRIBUTES
from streamer import Description

Said = Mapping[str, Sequence[Description]]  # mode -> a description of each clip
Row = dict[str, Any]
SHORT_S = 1.5  # so short speech may be missed
MIN_GROUP = 30  # clips: a smaller group means nothing by itself
OTHERS = "others"


def table_rows(clips: Sequence[Clip], said: Said) -> list[Row]:
    """A row for every mode and group; joined turns count by their length alone."""
    rows = []
    for by, group, members in groups(clips):
        own = [clips[i] for i in members]
        here = {mode: [found[i] for i in members] for mode, found in said.items()}
        rows += [
            {"by": by, "group": group, **scored(mode, own, found)} for mode, found in here.items()
        ]
    return rows


def whole_of(clips: Sequence[Clip]) -> list[int]:
    """The places of recordings as they are; of all where every one is joined."""
    whole = [i for i, clip in enumerate(clips) if not clip.is_joined]
    return whole or list(range(len(clips)))


def groups(clips: Sequence[Clip]) -> list[tuple[str, str, list[int]]]:
    """(by what, the group's name, its clips' places)."""
    whole = whole_of(clips)
    found = [("all", "all", whole)]
    for by in ("language", "source", "sex"):
        members = defaultdict(list)
        for i in whole:
            members[getattr(clips[i], by)].append(i)
        large = {name: of for name, of in sorted(members.items()) if len(of) >= MIN_GROUP}
        rest = [i for name in members if name not in large for i in members[name]]
        found += [(by, name, of) for name, of in {**large, OTHERS: rest}.items() if of]
    lengths = sorted({clip.length for clip in clips}, key=length_order)
    return found + [
        ("length", name, [i for i, clip in enumerate(clips) if clip.length == name])
        for name in lengths
    ]


def length_order(name: str) -> tuple[bool, float]:
    return "joined" in name, min(float(word) for word in name.split() if word.isdigit())


def scored(mode: str, clips: Sequence[Clip], found: Sequence[Description]) -> Row:
    """What each attribute reaches, their mean, what was accepted, and whose speech was missed."""
    row: Row = {
        "mode": mode,
        "clips": len(clips),
        "speakers": len({(c.source, c.speaker) for c in clips}),
    }
    for name in ATTRIBUTES:
        pairs = [
            (c.levels[name], f.attributes.get(name))
            for c, f in zip(clips, found, strict=True)
            if name in c.levels
        ]
        row[name] = attribute(pairs)
    row["mean"] = mean(row[name]["exact"] for name in ATTRIBUTES if row[name]["n"])
    uploaded = sum(f.n_uploaded for f in found)
    row["accepted / uploaded"] = sum(f.n_accepted for f in found) / uploaded if uploaded else None
    long = [f for c, f in zip(clips, found, strict=True) if len(c.samples) >= SHORT_S * 16_000]
    row["called no speech"] = sum(is_no_speech(f) for f in long)
    row["of clips >= 1.5 s"] = len(long)
    return row


def attribute(pairs: Sequence[tuple[int, int | None]]) -> Row:
    """pairs: (the level there was, the level said)."""
    if not pairs:
        return {"n": 0, "exact": None, "within": None, "bias": None, "constant": None}
    there = Counter(true for true, _ in pairs)
    return {
        "n": len(pairs),
        "exact": mean(float(said == true) for true, said in pairs),
        "within": mean(float(said is not None and abs(said - true) <= 1) for true, said in pairs),
        "bias": mean(said - true for true, said in pairs if said is not None),
        "constant": there.most_common(1)[0][1] / len(pairs),
    }


def is_no_speech(found: Description) -> bool:
    """Whether it says that nobody spoke, be it by voice activity or in the model's own words."""
    return all(level is None for level in found.attributes.values())


def rightness(clip: Clip, found: Description) -> float:
    """The share of a clip's known attributes whose level is exactly right."""
    return mean(float(found.attributes.get(name) == level) for name, level in clip.levels.items())


def gap_rows(clips: Sequence[Clip], said: Said, base: str = "edge") -> list[Row]:
    """Each other mode minus the edge, clip by clip, with the standard error of the mean."""
    right = {
        mode: np.array([rightness(*pair) for pair in zip(clips, found, strict=True)])
        for mode, found in said.items()
    }
    rows = []
    for by, group, members in groups(clips):
        for mode in (mode for mode in said if mode != base and base in said):
            found = mean_and_error((right[mode] - right[base])[members])
            rows.append({"by": by, "group": group, "gap": f"{mode} - {base}", **found})
    return rows


def mean_and_error(values: np.ndarray) -> Row:
    error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None
    return {"clips": len(values), "mean": float(values.mean()), "se": error}


def order_rows(clips: Sequence[Clip], said: Said) -> list[Row]:
    """Spearman's correlation of the level of rate said with the true syllables per second."""
    known = [i for i in whole_of(clips) if clips[i].syllables]
    rows = []
    for mode, found in said.items():
        for language in ("all", *sorted({clips[i].language for i in known})):
            own = [i for i in known if language in ("all", clips[i].language)]
            pairs = [(clips[i].measures.rate, found[i].attributes.get("rate")) for i in own]
            pairs = [(rate, level) for rate, level in pairs if level is not None]
            if len(pairs) >= MIN_GROUP:
                order = float(spearmanr(*zip(*pairs, strict=True)).statistic)
                row = {"mode": mode, "language": language, "clips": len(pairs)}
                rows.append({**row, "spearman": order})
    return rows


def shown(row: Row) -> list[str]:
    """A row's attributes for people: exact / within one / bias."""
    return [cell(row[name]) for name in ATTRIBUTES]


def cell(of: Row) -> str:
    if not of["n"]:
        return "-"
    return f"{of['exact']:.2f} / {of['within']:.2f} / {of['bias']:+.2f}"


def constant_row(row: Row) -> list[str]:
    return [f"{row[name]['constant']:.2f}" if row[name]["n"] else "-" for name in ATTRIBUTES]
