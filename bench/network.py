"""What does a real link between edge and verifier cost, and what hides it? In: held-out clips. Out: a table, plots.

`python -m bench.network [--num 20] [--rtt 0 20 50 100 200] [--mbit 20 1] [--edge-ms 0 100]`. A verifier process, a
proxy process with the delay and bandwidth (bench/proxy.py), the edge in this process; every clip through every arm in
turn, in one run. All of a clip but its last 100 ms is prefilled before the clock starts, as when somebody speaks.

edge only | cloud only (audio up, tokens streamed down: the honest rival) | plain synchronous speculation at the
preset's k, and at its best fixed k | ours: exact, gated fluent, gated quality | exact in one process, without a link.
--edge-ms: so much longer takes each id on the edge (real edges are slow: a 3B on two cores takes 376 ms); where it is
not 0, at the first bandwidth only.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import anyio
import numpy as np

from bench.clips import Clip, held_out
from bench.common import RESULTS, mean, median, progress, table, write
from streamer.core.results import Description
from streamer.describer import Describer
from streamer.recording_live import describe_live

ARMS: dict[str, dict[str, Any]] = {
    "edge only": {"mode": "edge"},
    "cloud only": {"mode": "cloud"},
    "plain, preset's k": {"mode": "exact", "draft_ahead": 0},
    "ours, exact": {"mode": "exact"},
    "ours, gated fluent": {"mode": "gated"},
    "ours, gated quality": {"mode": "gated", "preset": "quality"},
    "one process, exact": {"mode": "exact", "cloud": "embedded"},
}
BEST_OF_K = (2, 6, 8, 12, 16)
EXACT = ("cloud only", "plain, preset's k", "ours, exact", "one process, exact")


@contextmanager
def child(*command: str) -> Iterator[str]:
    """A process that says one line when it is ready."""
    process = subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(40)


def slow_down(describer: Describer, edge_s: float) -> None:
    """Every id that this describer's edge drafts takes `edge_s` longer."""
    parts = describer._parts
    assert parts is not None
    fast = parts.drafter

    class Slow:
        def __init__(self, drafter: Any) -> None:
            self._drafter = drafter

        def draft(self, n: int) -> Any:
            steps, logits = self._drafter.draft(n), None
            try:
                while True:
                    row = steps.send(logits)
                    time.sleep(edge_s)
                    logits = yield row
            except StopIteration as over:
                return over.value

    parts.drafter = lambda edge: Slow(fast(edge))  # type: ignore[method-assign]


class Meter:
    """What the verifier has done, from its /metrics."""

    def __init__(self, url: str) -> None:
        self._url = url.replace("ws", "http", 1) + "/metrics"

    def read(self) -> np.ndarray:
        """(seconds it judged, verdicts)."""
        with urllib.request.urlopen(self._url, timeout=10) as answer:
            text = answer.read().decode()
        names = ("streamer_judging_seconds_total", "streamer_verdicts_total")
        return np.array([float(re.search(rf"^{name} (\S+)$", text, re.M)[1]) for name in names])  # type: ignore[index]


async def play(describer: Describer, clip: Clip) -> Description:
    parts = await describer._live_parts()
    return await describe_live(parts, clip.path, lambda delta: None, anyio.CapacityLimiter(1))


async def cell(
    verifier: str, clips: Sequence[Clip], rtt_ms: float, mbit: float, edge_ms: float, arms: dict[str, dict[str, Any]]
) -> dict[str, list[tuple[Description, float]]]:
    """Per arm: each clip's Description and the milliseconds that the verifier judged for it."""
    found: dict[str, list[tuple[Description, float]]] = {name: [] for name in arms}
    meter, port = Meter(verifier), verifier.rsplit(":", 1)[1]
    with child("bench.proxy", port, "--rtt-ms", str(rtt_ms), "--mbit", str(mbit)) as proxy:
        async with AsyncExitStack() as stack:
            describers = {}
            for name, options in arms.items():
                more = {"cloud": f"ws://127.0.0.1:{proxy}"} | options
                describers[name] = await stack.enter_async_context(Describer.open(**more))
                await play(describers[name], clips[0])  # warm
                if edge_ms:
                    slow_down(describers[name], edge_ms / 1_000)
            for clip in progress(clips, f"{rtt_ms:g} ms, {mbit:g} Mbit/s, edge +{edge_ms:g} ms"):
                for name, describer in describers.items():
                    before = await anyio.to_thread.run_sync(meter.read)
                    described = await play(describer, clip)
                    spent = await anyio.to_thread.run_sync(meter.read) - before
                    found[name].append((described, 1_000 * float(spent[0])))
    return found


def summarise(
    found: dict[str, list[tuple[Description, float]]], clips: Sequence[Clip], **where: Any
) -> list[dict[str, Any]]:
    """A row per arm; ratios are medians over clips of the same clip's figures."""
    wanted = [described.ids for described, _ in found["cloud only"]]
    plain, edge = found["plain, preset's k"], found["edge only"]
    rows = []
    for name, pairs in found.items():
        ones = [described for described, _ in pairs]
        n_up, n_ids = sum(d.n_uploaded for d in ones), sum(d.n_tokens for d in ones)
        calls = sum(d.cloud_calls for d in ones)
        row = {**where, "arm": name, "num": len(ones)}
        for what in ("ttft_ms", "total_ms"):
            values = [getattr(d, what) for d in ones if getattr(d, what) is not None]
            row |= {f"{what}_p50": float(np.percentile(values, 50)), f"{what}_p95": float(np.percentile(values, 95))}
        row |= {
            "tokens_per_s": median(d.tokens_per_s for d in ones),
            "speed_vs_plain": median(map(_speed_ratio, ones, (p for p, _ in plain))),
            "total_vs_edge": median(d.total_ms / e.total_ms for d, (e, _) in zip(ones, edge, strict=True)),
            "stall_ms_per_call": sum(d.stall_ms for d in ones) / calls if calls else 0.0,
            "kb_up": mean(d.bytes_up for d in ones) / 1_000,
            "bytes_down": mean(d.bytes_down for d in ones),
            "cloud_calls": calls / len(ones),
            "cloud_ms_per_id": sum(ms for _, ms in pairs) / n_ids if n_ids else 0.0,
            "cloud_ids_per_id": (n_up + calls) / n_ids if n_ids else 0.0,
            "acceptance": sum(d.n_accepted for d in ones) / n_up if n_up else None,
            "wasted": sum(d.n_wasted for d in ones) / max(1, sum(d.n_drafted for d in ones)),
            "ahead_wasted": sum(d.n_ahead_wasted for d in ones) / max(1, sum(d.n_drafted for d in ones)),
            "verified_share": mean(d.verified_share for d in ones),
            "accuracy": accuracy(ones, clips),
            "mismatches": sum(d.ids != ids for d, ids in zip(ones, wanted, strict=True)) if name in EXACT else None,
        }
        rows.append(row)
    return rows


def _speed_ratio(a: Description, b: Description) -> float | None:
    return a.tokens_per_s / b.tokens_per_s if a.tokens_per_s and b.tokens_per_s else None


def accuracy(ones: Sequence[Description], clips: Sequence[Clip]) -> float:
    """Share of the attributes whose level is exactly right."""
    return mean(float(d.attributes.get(name) == level) for d, c in zip(ones, clips, strict=True)
                for name, level in c.levels.items() if name in d.attributes)  # fmt: skip


async def best_k(verifier: str, clips: Sequence[Clip], rtt_ms: float, mbit: float, edge_ms: float) -> tuple[int, float]:
    """Plain synchronous speculation at several fixed k: (the best, its tokens per second)."""
    arms = {f"k {k}": {"mode": "exact", "draft_ahead": 0, "k": k} for k in BEST_OF_K}
    found = await cell(verifier, clips, rtt_ms, mbit, edge_ms, arms)
    speeds = {k: median(d.tokens_per_s for d, _ in found[f"k {k}"]) for k in BEST_OF_K}
    return max(speeds.items(), key=lambda item: item[1])


COLUMNS = ("arm", "ttft_ms_p50", "ttft_ms_p95", "total_ms_p50", "total_ms_p95", "tokens_per_s", "speed_vs_plain",
           "total_vs_edge", "stall_ms_per_call", "kb_up", "bytes_down", "cloud_calls", "cloud_ms_per_id",
           "cloud_ids_per_id", "acceptance", "wasted", "ahead_wasted", "verified_share", "accuracy",
           "mismatches")  # fmt: skip


def show(rows: Sequence[dict[str, Any]]) -> str:
    return table(COLUMNS, [["" if row[c] is None else row[c] for c in COLUMNS] for row in rows])


def plot(rows: Sequence[dict[str, Any]], name: str) -> str:
    """Total time and speed against the round trip, a line per arm; a row of axes per edge and bandwidth."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    settings = list(dict.fromkeys((row["edge_ms"], row["mbit"]) for row in rows))
    figure, axes = pyplot.subplots(len(settings), 3, figsize=(14, 0.8 + 3.9 * len(settings)), squeeze=False,
                                   constrained_layout=True)  # fmt: skip
    what = (("ttft_ms_p50", "first text after the last word, ms"), ("total_ms_p50", "whole sentence, ms"),
            ("speed_vs_plain", "ids per s, ratio to plain speculation"))  # fmt: skip
    for (edge_ms, mbit), line in zip(settings, axes, strict=True):
        for axis, (column, label) in zip(line, what, strict=True):
            for i, arm in enumerate(ARMS):
                mine = [r for r in rows if (r["edge_ms"], r["mbit"], r["arm"]) == (edge_ms, mbit, arm)]
                x, y = [r["rtt_ms"] for r in mine], [r[column] for r in mine]
                axis.plot(x, y, marker="o", color=f"C{i}", label=arm)
            axis.set(title=f"edge +{edge_ms:g} ms per id, {mbit:g} Mbit/s", xlabel="round trip, ms", ylabel=label)
            axis.set_ylim(0)
            axis.grid(alpha=0.3)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{name}.png"
    figure.savefig(file, dpi=100)
    return str(file)


async def measure(options: argparse.Namespace, verifier: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    clips = held_out(options.num, options.seconds)
    for edge_ms in options.edge_ms:
        for mbit in options.mbit if edge_ms == 0 else options.mbit[:1]:
            for rtt_ms in options.rtt:
                found = await cell(verifier, clips, rtt_ms, mbit, edge_ms, ARMS)
                where = {"rtt_ms": rtt_ms, "mbit": mbit, "edge_ms": edge_ms, "seconds": options.seconds}
                mine = summarise(found, clips, **where)
                k, speed = await best_k(verifier, clips[: options.num_best_k], rtt_ms, mbit, edge_ms)
                rows += [row | {"best_fixed_k": k, "best_fixed_tokens_per_s": speed} for row in mine]
                print(f"\nround trip {rtt_ms:g} ms, {mbit:g} Mbit/s, edge +{edge_ms:g} ms per id; "
                      f"plain at its best fixed k, {k}: {speed:.0f} ids/s\n{show(mine)}", flush=True)  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num", type=int, default=20, help="clips per cell")
    parser.add_argument("--num-best-k", type=int, default=4, help="of them, to find plain speculation's best fixed k")
    parser.add_argument("--name", default="network", help="of the files in bench/results")
    parser.add_argument("--seconds", type=int, default=10, help="length of the clips")
    parser.add_argument("--rtt", type=float, nargs="+", default=[0, 20, 50, 100, 200], help="round trips, ms")
    parser.add_argument("--mbit", type=float, nargs="+", default=[20, 1], help="bandwidths")
    parser.add_argument("--edge-ms", type=float, nargs="+", default=[0, 100], help="added to every id of the edge")
    options = parser.parse_args()
    with child("streamer", "verifier", "--port", "0") as line:
        rows = asyncio.run(measure(options, line.split()[2]))
    print("written:", write(options.name, rows), plot(rows, options.name))


if __name__ == "__main__":
    main()
