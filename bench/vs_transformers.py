"""The same models, clips and machine in one run: transformers' own generation, and ours. Out:
ratios, a plot.

`python -m bench.vs_transformers [--num 8] [--arms NAME ...]`. transformers gets the cheapest equal
extractor (the clip's own length, not 300 s of padding) and the same prompt. What it does after the
end of the audio is timed: extract, encode, prefill, decode. Ours hears while the audio arrives, so
after its end only the last window and the suffix remain.

transformers has further arms, all of the cloud: its static cache; the same under torch.compile,
where there is a C++ compiler; its assisted generation as it is, whose assistant never receives the
audio; and that mended (bench/assisted.py). The "stock" arms of ours run on transformers' modules
(`--engine stock`).

tokens/s is the tokens after the first text over the time after it, on both sides. Assisted
generation tells no token before all are there. So its tokens are divided by its time less the
log-mel and the first forward of both models.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.arms import models_of, run
from bench.assisted import hearing
from bench.clips import Clip, held_out
from bench.common import median, panels, progress, saved, table_of, write
from bench.generate_arms import (
    ASSISTED,
    BASES,
    COMPILED,
    STATIC,
    Timing,
    compiled,
    has_compiler,
    one_shot,
)
from bench.keep import options_of
from streamer.model.engines.stock import load_stock

LENGTHS = (3, 10, 20, 30, 60)
MODES = ("edge", "cloud", "exact", "gated")
OURS = {
    f"{kind}, {mode}": (engine, mode)
    for kind, engine in (("ours", "fast"), ("stock", "stock"))
    for mode in MODES
}
COLUMNS = {
    "seconds": "audio, s",
    "arm": "arm",
    "first_ms": "first text ms",
    "total_ms": "total ms",
    "tokens_per_s": "tokens/s",
    "first_ratio": "first / generate()",
    "total_ratio": "total / generate()",
    "speed_ratio": "tokens/s / generate()",
}
ARMS = (*BASES, STATIC, COMPILED, *ASSISTED, *OURS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num", type=int, default=8, help="clips of each length")
    parser.add_argument(
        "--repeats", type=int, default=3, help="runs of each clip, after one that is dropped"
    )
    parser.add_argument(
        "--threads", type=int, default=2, help="of transformers' arms; ours takes its own choice"
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="seconds of audio")
    parser.add_argument(
        "--arms",
        nargs="+",
        choices=ARMS,
        default=ARMS,
        metavar="NAME",
        help=f"of {'; '.join(ARMS)}; both of {' and '.join(BASES)} always run",
    )
    options = options_of(parser)
    arms = make_arms(options.threads, options.arms)
    rows = []
    for seconds in sorted(options.lengths):
        clips = held_out(options.num, seconds)
        compared = compare(arms, clips, options.repeats, f"{seconds} s")
        rows += [row | {"seconds": seconds} for row in compared]
    print(table_of(rows, COLUMNS))
    told = "edge against generate() of the edge, all others of the cloud"
    print(f"ratios: medians of pairs in this run; {told}")
    for r in rows:
        if "over_assisted" in r:
            times = f"{r['over_assisted']:.1f} times those of {ASSISTED[1]}"
            print(f"{r['seconds']} s: ids/s of exact mode are {times}")
    print("\nwritten:", write("vs_transformers", rows), plot(rows))


def make_arms(threads: int, chosen: Sequence[str]) -> dict[str, Callable[[np.ndarray], Timing]]:
    """The chosen arms as functions of samples, all on the same weights; transformers' with
    `threads`, ours its own."""
    ours = {
        name: models_of(engine=engine, mode=mode)
        for name, (engine, mode) in OURS.items()
        if name in chosen
    }
    for models in ours.values():
        models.load()
    edge, cloud = models_of(mode="exact").pair
    assert edge is not None
    assert cloud is not None
    own = torch.get_num_threads()  # as loading the models has set it
    stock_edge = load_stock(edge.directory)
    stock_cloud = load_stock(cloud.directory)
    of_cloud = functools.partial(one_shot, cloud, stock_cloud)
    arms = {BASES[0]: functools.partial(one_shot, edge, stock_edge), BASES[1]: of_cloud}
    arms[STATIC] = functools.partial(of_cloud, cache_implementation="static")
    arms[COMPILED] = functools.partial(arms[STATIC], compile_config=compiled())
    arms[ASSISTED[0]] = functools.partial(of_cloud, assistant_model=stock_edge)
    mended = hearing(load_stock(edge.directory))
    arms[ASSISTED[1]] = functools.partial(of_cloud, assistant_model=mended)
    if COMPILED in chosen and not has_compiler():
        print(f"{COMPILED}: not available here: no compiler")
        del arms[COMPILED]
    wanted = {
        name: with_threads(threads, arm) for name, arm in arms.items() if name in (*BASES, *chosen)
    }
    return wanted | {
        name: with_threads(own, functools.partial(timed, models)) for name, models in ours.items()
    }


def with_threads(num: int, arm: Callable[[np.ndarray], Timing]) -> Callable[[np.ndarray], Timing]:
    def run_it(samples: np.ndarray) -> Timing:
        torch.set_num_threads(num)
        return arm(samples)

    return run_it


def compare(
    arms: dict[str, Callable[[np.ndarray], Timing]], clips: Sequence[Clip], repeats: int, what: str
) -> list[dict[str, Any]]:
    """Each clip through every arm in turn, so that a drifting machine drifts for all; medians of
    paired ratios."""
    found: dict[str, list[Timing]] = {name: [] for name in arms}
    for clip in progress(clips, what):
        for i in range(repeats + 1):
            for name, arm in arms.items():
                timing = arm(clip.samples)
                if i > 0:
                    found[name].append(timing)
    rows = []
    for name, timings in found.items():
        base = found[BASES[0] if name.endswith("edge") else BASES[1]]
        pairs = list(zip(timings, base, strict=True))
        rows.append(
            {
                "arm": name,
                "first_ms": 1000 * median(t.first_s for t in timings),
                "total_ms": 1000 * median(t.total_s for t in timings),
                "tokens_per_s": median(t.tokens_per_s for t in timings),
                "first_ratio": median(t.first_s / b.first_s for t, b in pairs),
                "total_ratio": median(t.total_s / b.total_s for t, b in pairs),
                "speed_ratio": median(t.tokens_per_s / b.tokens_per_s for t, b in pairs),
                "num_ids": median(t.num_ids for t in timings),
            }
        )
        if name == "ours, exact" and (assisted := found.get(ASSISTED[1])):
            against = zip(timings, assisted, strict=True)
            rows[-1]["over_assisted"] = median(t.tokens_per_s / a.tokens_per_s for t, a in against)
    return rows


def timed(models: Any, samples: np.ndarray) -> Timing:
    found = run(models, samples)
    return Timing(found.ttft_s, found.total_s, found.tokens_per_s or float("nan"), len(found.ids))


def plot(rows: Sequence[dict[str, Any]]) -> Path:
    """First text after the end of the audio, and ids per second, against the turn's length."""
    figure, (left, right) = panels(1, 2, (12, 4.2))
    # those are 1
    names = [n for n in dict.fromkeys(row["arm"] for row in rows) if n not in BASES]
    for i, name in enumerate(names):
        mine = [row for row in rows if row["arm"] == name]
        style: dict[str, Any] = {"linestyle": "-" if name in OURS else "--", "color": f"C{i % 10}"}
        x = [row["seconds"] for row in mine]
        style["marker"] = "o" if name.startswith("ours") else "x"
        if name not in ASSISTED:  # they give all ids at the end
            left.plot(x, [row["first_ratio"] for row in mine], **style)
        right.plot(x, [row["speed_ratio"] for row in mine], label=name, **style)
    left.set(title="First text after the end of the audio", yscale="log")
    right.set(title="Ids per second while decoding", ylim=(0, None))
    for axis in (left, right):
        axis.set(ylabel="ratio to transformers' generate()", xlabel="seconds of audio")
        axis.grid(alpha=0.3)
        axis.axhline(1.0, color="black", linewidth=0.8)
    figure.legend(loc="outside right center", fontsize=9)
    return saved(figure, "vs_transformers")


if __name__ == "__main__":
    main()
