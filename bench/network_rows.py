"""What bench/network.py found, in numbers. In: clips as played through each arm. Out: a row per
arm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.clips import Clip
from bench.common import mean, median

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
EXACT = ("cloud only", "plain, preset's k", "ours, exact", "one process, exact")


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
            pairs = zip(played, found["cloud only"], strict=True)
            row["mismatches"] = sum(p.described.ids != c.described.ids for p, c in pairs)
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
        row |= {f"{what}_p{p}": float(np.percentile(values, p)) for p in (50, 95)}
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


def of(rows: Sequence[dict[str, Any]], *arms: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["arm"] in arms]
