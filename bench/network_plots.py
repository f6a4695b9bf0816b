"""What bench/network.py found, in pictures. In: rows. Out: plots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.common import panels, saved
from bench.network_rows import ARMS, of

Lines = dict[str, tuple[list[float], list[float]]]


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


def lines(rows: Sequence[dict[str, Any]], x: str, y: str) -> Lines:
    """Arm -> (x, y)."""
    found: Lines = {}
    for arm in ARMS:
        mine = sorted((r[x], r[y]) for r in of(rows, arm) if r.get(y) is not None)
        if mine:
            found[arm] = ([a for a, _ in mine], [b for _, b in mine])
    return found


def draw(curves: Sequence[Sequence[tuple[str, str, str, Lines]]], name: str) -> Path:
    size = (4.6 * len(curves[0]), 0.8 + 3.9 * len(curves))
    figure, axes = panels(len(curves), len(curves[0]), size, squeeze=False)
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
    return saved(figure, name)
