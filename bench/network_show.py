"""What bench/network.py found. In: clips as played through each arm. Out: rows, a table, plots, and
a conclusion in words."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.clips import Clip
from bench.common import mean, median, table
from bench.keep import place

if TYPE_CHECKING:
    from bench.network import Played
    from streamer.core.description import Description

ARMS: dict[str, dict[str, Any]] = {
    "edge only": {"mode": "edge"},
    "cloud only": {"mode": "cloud"},
    "plain, preset's k": {"mode": "exact", "draft_ahead": 0},
    "ours, exact": {"mode": "exact"},
    "ours, gated fluent": {"mode": "gated"},
    "ours, gated quality": {"mode": "gated", "preset": "quality"},
    "one process, exact": {"mode": "exact", "cloud": "embedded"},
}
FIXED: dict[str, dict[str, Any]] = {
    f"plain, k {k}": {"mode": "exact", "draft_ahead": 0, "k": k} for k in (2, 6, 8, 12, 16)
}
GATED = ("ours, gated fluent", "ours, gated quality")
EXACT = ("cloud only", "plain, preset's k", "ours, exact", "one process, exact")
COLUMNS = (
    "arm",
    "num",
    "ttft_ms_p50",
    "ttft_ms_p95",
    "total_ms_p50",
    "total_ms_p95",
    "tokens_per_s",
    "speed_vs_plain",
    "speed_vs_best_k",
    "ttft_vs_cloud",
    "total_vs_cloud",
    "total_vs_edge",
    "over_edge_bound",
    "over_edge_bound_heard",
    "end_ms",
    "stall_ms_per_call",
    "kb_up",
    "bytes_down",
    "cloud_calls",
    "cloud_ms_per_id",
    "cloud_ms_vs_cloud",
    "cloud_ids_per_id",
    "acceptance",
    "accepted_per_judged",
    "wasted",
    "ahead_wasted",
    "verified_share",
    "accuracy",
    "mismatches",
)


def summarise(
    found: dict[str, list[Played]], clips: Sequence[Clip], **where: Any
) -> list[dict[str, Any]]:
    """A row per arm; ratios are medians over clips of the same clip's figures."""
    plain = found["plain, preset's k"]
    best_k, best = best_of(found)
    cloud_ms = ms_per_id(found["cloud only"])
    rows = []
    for name in (name for name in found if name in ARMS):
        played = found[name]
        row = {**where, "arm": name, "num": len(played)} | times(played)
        row |= {
            "speed_vs_plain": median(map(speed_ratio, played, plain)),
            "best_k": best_k,
            "speed_vs_best_k": median(map(speed_ratio, played[: len(best)], best))
            if best
            else None,
            "ttft_vs_cloud": median(map(ttft_ratio, played, found["cloud only"])),
            "total_vs_cloud": median(map(total_ratio, played, found["cloud only"])),
            "cloud_ms_vs_cloud": ms_per_id(played) / cloud_ms,
            "accuracy": accuracy([p.described for p in played], clips),
        }
        if "edge only" in found:
            row |= beside_the_edge(played, found["edge only"], where["rtt_ms"])
        if name in EXACT:
            row["mismatches"] = sum(
                p.described.ids != c.described.ids
                for p, c in zip(played, found["cloud only"], strict=True)
            )
        rows.append({column: None if is_nan(value) else value for column, value in row.items()})
    return rows


def is_nan(value: Any) -> bool:
    """JSON has no such number."""
    return isinstance(value, float) and math.isnan(value)


def times(played: Sequence[Played]) -> dict[str, Any]:
    """One arm by itself."""
    ones = [p.described for p in played]
    n_up, n_ids, calls = (
        sum(getattr(d, name) for d in ones) for name in ("n_uploaded", "n_tokens", "cloud_calls")
    )
    n_accepted = sum(d.n_accepted for d in ones)
    n_judged = sum(p.num_judged for p in played)
    n_drafted = max(1, sum(d.n_drafted for d in ones))
    row: dict[str, Any] = {}
    for what in ("ttft_ms", "total_ms"):
        values = [getattr(d, what) for d in ones if getattr(d, what) is not None]
        row |= {
            f"{what}_p50": float(np.percentile(values, 50)),
            f"{what}_p95": float(np.percentile(values, 95)),
        }
    return row | {
        "tokens_per_s": median(d.tokens_per_s for d in ones),
        "stall_ms_per_call": sum(d.stall_ms for d in ones) / calls if calls else 0.0,
        "kb_up": mean(d.bytes_up for d in ones) / 1_000,
        "bytes_down": mean(d.bytes_down for d in ones),
        "cloud_calls": calls / len(ones),
        "cloud_ms_per_id": ms_per_id(played),
        "cloud_ids_per_id": (n_judged + sum(p.num_verdicts for p in played)) / n_ids
        if n_ids
        else 0.0,
        # of all that went up, dropped before it was judged or not
        "acceptance": n_accepted / n_up if n_up else None,
        "accepted_per_judged": n_accepted / n_judged if n_judged else None,
        "wasted": sum(d.n_wasted for d in ones) / n_drafted,
        "ahead_wasted": sum(d.n_ahead_wasted for d in ones) / n_drafted,
        "verified_share": mean(d.verified_share for d in ones),
    }


def beside_the_edge(
    played: Sequence[Played], edge: Sequence[Played], rtt_ms: float
) -> dict[str, Any]:
    """total_vs_edge; over_edge_bound: what uploads cost, of what they may: calls x (round trip +
    verify); the same with the wait for the verifier to hear the turn's end, once per turn (end_ms,
    mean), allowed, too."""
    pairs = [(p, e.described) for p, e in zip(played, edge, strict=True)]
    allowed = sum(p.described.cloud_calls * rtt_ms + p.judged_ms for p in played)
    over = sum(p.described.total_ms - e.total_ms for p, e in pairs)
    return {
        "total_vs_edge": median(p.described.total_ms / e.total_ms for p, e in pairs),
        "over_edge_bound": over / allowed if allowed else None,
        "over_edge_bound_heard": over / (allowed + sum(p.end_ms for p in played))
        if allowed
        else None,
        "end_ms": mean(p.end_ms for p in played),
    }


def best_of(found: dict[str, list[Played]]) -> tuple[int, list[Played]]:
    """Plain synchronous speculation at its best fixed k: (k, its clips), by ids per second on the
    same clips."""
    num = len(found[next(iter(FIXED))]) if next(iter(FIXED)) in found else 0
    arms = {4: found["plain, preset's k"][:num]} | {
        v["k"]: found[n] for n, v in FIXED.items() if n in found
    }
    return max(
        arms.items(),
        key=lambda item: median(p.described.tokens_per_s for p in item[1]) if num else 0,
    )


def ms_per_id(played: Sequence[Played]) -> float:
    return sum(p.judged_ms for p in played) / max(1, sum(p.described.n_tokens for p in played))


def speed_ratio(a: Played, b: Played) -> float | None:
    x = a.described.tokens_per_s
    y = b.described.tokens_per_s
    return x / y if x and y else None


def ttft_ratio(a: Played, b: Played) -> float | None:
    x = a.described.ttft_ms
    y = b.described.ttft_ms
    return x / y if x and y else None


def total_ratio(a: Played, b: Played) -> float:
    return a.described.total_ms / b.described.total_ms


def accuracy(ones: Sequence[Description], clips: Sequence[Clip]) -> float:
    """Share of the attributes whose level is exactly right."""
    return mean(
        float(d.attributes.get(name) == level)
        for d, c in zip(ones, clips, strict=True)
        for name, level in c.levels.items()
        if name in d.attributes
    )


def show(rows: Sequence[dict[str, Any]]) -> str:
    lines = [["" if row.get(c) is None else row[c] for c in COLUMNS] for row in rows]
    return table(COLUMNS, lines) + f"\n\nplain speculation's best fixed k: {rows[0]['best_k']}"


README = (
    (
        "tokens per second, exact, ratio to plain synchronous speculation (k 4)",
        "speed_vs_plain",
        "ours, exact",
    ),
    ("the same, ratio to it at its best fixed k", "speed_vs_best_k", "ours, exact"),
    ("whole sentence, ratio to edge only's: exact", "total_vs_edge", "ours, exact"),
    ("gated, fluent", "total_vs_edge", "ours, gated fluent"),
    ("gated, quality", "total_vs_edge", "ours, gated quality"),
    ("cloud only, tokens streamed down", "total_vs_edge", "cloud only"),
    ("plain synchronous speculation (k 4)", "total_vs_edge", "plain, preset's k"),
    ("first text, ratio to cloud only's: exact", "ttft_vs_cloud", "ours, exact"),
    ("gated, fluent", "ttft_vs_cloud", "ours, gated fluent"),
    ("cloud's work per token, ratio to cloud only: exact", "cloud_ms_vs_cloud", "ours, exact"),
    ("gated, fluent", "cloud_ms_vs_cloud", "ours, gated fluent"),
    (
        "time over edge only's, of uploads x (round trip + verify): fluent",
        "over_edge_bound",
        "ours, gated fluent",
    ),
    ("quality", "over_edge_bound", "ours, gated quality"),
    (
        "the same, the verifier's hearing of the end allowed, too: fluent",
        "over_edge_bound_heard",
        "ours, gated fluent",
    ),
    ("quality", "over_edge_bound_heard", "ours, gated quality"),
)  # what a line of the table says, from which column, of which arm


SLOWED = (
    ("whole sentence, ratio to edge only's: cloud only", "total_vs_edge", "cloud only"),
    ("gated, fluent", "total_vs_edge", "ours, gated fluent"),
    ("gated, quality", "total_vs_edge", "ours, gated quality"),
    ("exact", "total_vs_edge", "ours, exact"),
    ("plain synchronous speculation (k 4)", "total_vs_edge", "plain, preset's k"),
    (
        "tokens per second, exact, ratio to plain synchronous speculation (k 4)",
        "speed_vs_plain",
        "ours, exact",
    ),
)


def readme(rows: Sequence[dict[str, Any]]) -> str:
    """The tables of docs/measured.md: one per bandwidth, one of slowed edges. Lines that no row has
    a figure for are left out."""
    slowed = [r for r in rows if r["edge_ms"]]
    tables = [
        _readme(
            [r for r in rows if r["mbit"] == mbit and not r["edge_ms"]],
            f"{mbit:g} Mbit/s, round trip",
            "rtt_ms",
            README,
        )
        for mbit in dict.fromkeys(r["mbit"] for r in rows)
    ]
    if slowed:
        link = f"{slowed[0]['rtt_ms']:g} ms, {slowed[0]['mbit']:g} Mbit/s"
        name = f"{link}, each token of the edge longer by"
        tables.append(_readme(slowed, name, "edge_ms", SLOWED))
    return "\n\n".join(tables)


def _readme(
    rows: Sequence[dict[str, Any]], name: str, by: str, wanted: Sequence[tuple[str, str, str]]
) -> str:
    settings = list(dict.fromkeys(r[by] for r in rows))
    head = " | ".join([name, *(f"{setting:g} ms" for setting in settings)])
    lines = [f"| {head} |", "|---" * (len(settings) + 1) + "|"]
    for text, column, arm in wanted:
        found = {r[by]: r.get(column) for r in of(rows, arm)}
        if any(v is not None and not is_nan(v) for v in found.values()):
            lines.append(f"| {text} | " + " | ".join(_short(found[s]) for s in settings) + " |")
    return "\n".join(lines)


def _short(value: float | None) -> str:
    """Two digits: 1.3, 42, 0.27."""
    if value is None or is_nan(value):
        return ""
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.995 else f"{value:.2f}"


def conclude(rows: Sequence[dict[str, Any]]) -> str:
    """In words: where cloud-only wins, and the worst of each figure that was asked for."""
    quick = [r for r in rows if r["edge_ms"] == 0]
    exact = of(rows, *EXACT[1:])
    found = [
        lost_to_the_cloud(rows, arm) for arm in ARMS if arm.startswith("ours") and of(rows, arm)
    ]
    exact_quick = of(quick, "ours, exact")
    gated_quick = of(quick, *GATED)
    slowed = [r for r in of(rows, *GATED) if r["edge_ms"] >= 100]
    asked = (
        (
            "exact, ids per second of plain speculation's at 50 and 100 ms, least",
            min,
            "speed_vs_plain",
            [r for r in exact_quick if r["rtt_ms"] in (50, 100)],
        ),
        (
            "exact, the cloud's work per id of cloud-only's, most",
            max,
            "cloud_ms_vs_cloud",
            exact_quick,
        ),
        (
            "gated's time over edge-only's, of calls x (round trip + verify), most",
            max,
            "over_edge_bound",
            gated_quick,
        ),
        (
            "gated's time of edge-only's where an id takes 100 ms more, most",
            max,
            "total_vs_edge",
            slowed,
        ),
        ("gated, accepted / judged, least", min, "accepted_per_judged", gated_quick),
    )
    found += [
        f"{text}: {pick(r[name] for r in some):.2f}" for text, pick, name, some in asked if some
    ]
    n_differ = sum(r["mismatches"] for r in exact)
    n = sum(r["num"] for r in exact)
    found.append(f"answers whose ids differ from cloud-only's: {n_differ} of {n}")
    return "\n".join(f"- {line}" for line in found)


def lost_to_the_cloud(rows: Sequence[dict[str, Any]], arm: str) -> str:
    """Where cloud-only's whole sentence is there first, in the median of turns."""
    lost = [r for r in of(rows, arm) if r["total_vs_cloud"] > 1]
    where = [
        f"{r['rtt_ms']:g} ms {r['mbit']:g} Mbit/s"
        + f" edge +{r['edge_ms']:g} ms" * (r["edge_ms"] > 0)
        for r in lost
    ]
    return (
        f"cloud only has the whole sentence before {arm} at: {', '.join(where) or 'none of these'}"
    )


def of(rows: Sequence[dict[str, Any]], *arms: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["arm"] in arms]


def plot(rows: Sequence[dict[str, Any]], name: str) -> str:
    """First text, whole sentence and speed against the round trip, a line per arm; a row of axes
    per bandwidth."""
    quick = [r for r in rows if r["edge_ms"] == 0]
    settings = list(dict.fromkeys(r["mbit"] for r in quick))
    columns = (
        ("ttft_ms_p50", "first text after the last word, ms"),
        ("total_ms_p50", "whole sentence, ms"),
        ("speed_vs_plain", "ids per s, ratio to plain speculation"),
        ("cloud_ms_vs_cloud", "cloud's work per token, ratio to cloud only"),
    )
    curves = []
    for mbit in settings:
        some = [r for r in quick if r["mbit"] == mbit]
        curves.append(
            [
                (f"{mbit:g} Mbit/s", "round trip, ms", y, lines(some, "rtt_ms", x))
                for x, y in columns
            ]
        )
    return draw(curves, name)


def plot_slowed(rows: Sequence[dict[str, Any]], name: str) -> list[str]:
    """Whole sentence against how much longer a token takes on the edge, at one round trip. It shows
    where the two break even."""
    slowed = [r for r in rows if r["edge_ms"]]
    if not slowed:
        return []
    rtt = slowed[0]["rtt_ms"]
    mbit = slowed[0]["mbit"]
    here = [r for r in rows if (r["rtt_ms"], r["mbit"]) == (rtt, mbit)]
    title = f"{rtt:g} ms, {mbit:g} Mbit/s"
    columns = (
        ("ttft_ms_p50", "first text after the last word, ms"),
        ("total_ms_p50", "whole sentence, ms"),
        ("total_vs_edge", "whole sentence, ratio to edge only"),
    )
    return [
        draw(
            [
                [
                    (
                        title,
                        "added to each id of the edge, ms",
                        label,
                        lines(here, "edge_ms", column),
                    )
                    for column, label in columns
                ]
            ],
            name,
        )
    ]


Lines = dict[str, tuple[list[float], list[float]]]


def lines(rows: Sequence[dict[str, Any]], x: str, y: str) -> Lines:
    """Arm -> (x, y)."""
    found: Lines = {}
    for arm in ARMS:
        mine = sorted((r[x], r[y]) for r in of(rows, arm) if r.get(y) is not None)
        if mine:
            found[arm] = ([a for a, _ in mine], [b for _, b in mine])
    return found


def draw(curves: Sequence[Sequence[tuple[str, str, str, Lines]]], name: str) -> str:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    size = (4.6 * len(curves[0]), 0.8 + 3.9 * len(curves))
    figure, axes = pyplot.subplots(
        len(curves), len(curves[0]), figsize=size, squeeze=False, constrained_layout=True
    )
    for line, described in zip(axes, curves, strict=True):
        for axis, (title, below, beside_it, arms) in zip(line, described, strict=True):
            for arm, (x, y) in arms.items():
                axis.plot(x, y, marker="o", color=f"C{list(ARMS).index(arm)}", label=arm)
            axis.set(title=title, xlabel=below, ylabel=beside_it)
            if "plain speculation" in beside_it:
                axis.set_yscale("log")  # edge only and cloud only are far above the others
            else:
                axis.set_ylim(0)
            axis.grid(alpha=0.3)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
    file = place(f"{name}.png")
    figure.savefig(file, dpi=100)
    pyplot.close(figure)
    return str(file)


if __name__ == "__main__":
    print(
        readme([json.loads(line) for line in Path(sys.argv[1]).read_text("utf-8").splitlines()[1:]])
    )
