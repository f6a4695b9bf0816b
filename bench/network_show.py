"""What bench/network.py found, in words. In: rows. Out: tables, and a conclusion.

`python -m bench.network_show FILE.jsonl` prints the tables of docs/measured.md again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.common import table
from bench.network_rows import ARMS, EXACT, is_nan, of

GATED = ("ours, gated fluent", "ours, gated quality")
COLUMNS = (
    *("arm", "num", "ttft_ms_p50", "ttft_ms_p95", "total_ms_p50", "total_ms_p95", "tokens_per_s"),
    *("speed_vs_plain", "speed_vs_best_k", "ttft_vs_cloud", "total_vs_cloud", "total_vs_edge"),
    *("over_edge_bound", "over_edge_bound_heard", "end_ms", "stall_ms_per_call", "kb_up"),
    *("bytes_down", "cloud_calls", "cloud_ms_per_id", "cloud_ms_vs_cloud", "cloud_ids_per_id"),
    *("acceptance", "accepted_per_judged", "wasted", "ahead_wasted", "verified_share"),
    *("accuracy", "mismatches"),
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
    tables = []
    for mbit in dict.fromkeys(r["mbit"] for r in rows):
        here = [r for r in rows if r["mbit"] == mbit and not r["edge_ms"]]
        tables.append(_readme(here, f"{mbit:g} Mbit/s, round trip", "rtt_ms", README))
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="that bench.network wrote, such as network.jsonl")
    _, *lines = parser.parse_args().file.read_text("utf-8").splitlines()
    print(readme([json.loads(line) for line in lines]))


if __name__ == "__main__":
    main()
