"""The same models, clips and machine in one run: transformers' own generation, and ours. Out: ratios, a plot.

`python -m bench.vs_transformers [--num 8]`. transformers gets the cheapest equal extractor (the clip's own length, not
300 s of padding) and the same prompt; what it does after the end of the audio is timed: extract, encode, prefill,
decode. Ours hears while the audio arrives, so after its end only the last window and the suffix remain. Assisted
generation is transformers' own, as it is (its assistant never receives the audio) and mended (bench/assisted.py).
"ours, stock" is exact mode on transformers' modules (`--engine stock`).

tokens/s: ids after the first text over the time after it, on both sides. Assisted generation tells no id before all are
there: its ids over its time less the log-mel and the first forward of both models.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bench.arms import models_of, run
from bench.assisted import FirstForward, hearing
from bench.clips import Clip, held_out
from bench.common import RESULTS, median, progress, table, write
from streamer.model.mel import StreamingLogMel
from streamer.model.stock import load_stock
from streamer.model.thinker import Thinker

LENGTHS = (3, 10, 30, 60)
OURS = {"ours, edge": "edge", "ours, cloud": "cloud", "ours, exact": "exact", "ours, gated": "gated"}
ASSISTED = ("assisted generation", "assisted, hearing")


@dataclass(frozen=True)
class Timing:
    """Seconds since the audio's end; ids per second of decoding."""

    first_s: float
    total_s: float
    tokens_per_s: float
    num_ids: int


class Clock:
    """A transformers streamer that notes when each id comes, and tells it; `put` is first called with the prompt."""

    def __init__(self, tell: Callable[[int], None] | None = None) -> None:
        self.at: list[float] = []
        self._tell = tell

    def put(self, value: torch.Tensor) -> None:
        self.at.append(time.perf_counter())
        if self._tell is not None and len(self.at) > 1:
            self._tell(int(value))

    def end(self) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num", type=int, default=8, help="clips of each length")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each clip, after one that is dropped")
    parser.add_argument("--threads", type=int, default=2, help="of transformers' arms; ours takes its own choice")
    parser.add_argument("--lengths", type=int, nargs="+", default=[*LENGTHS, 20])
    options = parser.parse_args()
    arms = make_arms(options.threads)
    rows = []
    for seconds in sorted(options.lengths):
        clips = held_out(options.num, seconds)
        rows += [row | {"seconds": seconds} for row in compare(arms, clips, options.repeats, f"{seconds} s")]
    header = ("audio", "arm", "first text ms", "total ms", "tokens/s", "first / generate()", "total / generate()",
              "tokens/s / generate()")  # fmt: skip
    cells = [(f"{r['seconds']} s", r["arm"], r["first_ms"], r["total_ms"], r["tokens_per_s"], r["first_ratio"],
              r["total_ratio"], r["speed_ratio"]) for r in rows]  # fmt: skip
    print(table(header, cells))
    print("ratios: medians of pairs in this run; edge against generate() of the edge, all others of the cloud")
    print("\nwritten:", write("vs_transformers", rows), plot(rows))


def make_arms(threads: int) -> dict[str, Callable[[np.ndarray], Timing]]:
    """Every arm as a function of samples, all on the same weights; transformers' with `threads`, ours with its own."""
    ours = {name: models_of(mode=mode) for name, mode in OURS.items()}
    edge, cloud = ours["ours, exact"].pair
    assert edge is not None
    assert cloud is not None
    own = torch.get_num_threads()  # as loading the models has set it
    stock_edge, stock_cloud = load_stock(edge.directory), load_stock(cloud.directory)
    assistants = (stock_edge, hearing(load_stock(edge.directory)))
    slow = models_of(mode="exact", engine="stock")
    return {
        "generate(), edge": with_threads(threads, lambda s: one_shot(edge, stock_edge, s)),
        "generate(), cloud": with_threads(threads, lambda s: one_shot(cloud, stock_cloud, s)),
        **{name: with_threads(threads, functools.partial(one_shot, cloud, stock_cloud, assistant_model=assistant))
           for name, assistant in zip(ASSISTED, assistants, strict=True)},
        **{name: with_threads(own, functools.partial(timed, models)) for name, models in ours.items()},
        "ours, stock": with_threads(own, functools.partial(timed, slow)),
    }


def with_threads(num: int, arm: Callable[[np.ndarray], Timing]) -> Callable[[np.ndarray], Timing]:
    def run_it(samples: np.ndarray) -> Timing:
        torch.set_num_threads(num)
        return arm(samples)

    return run_it


def compare(
    arms: dict[str, Callable[[np.ndarray], Timing]], clips: Sequence[Clip], repeats: int, what: str
) -> list[dict[str, Any]]:
    """Each clip through every arm in turn, so that a drifting machine drifts for all; medians of paired ratios."""
    found: dict[str, list[Timing]] = {name: [] for name in arms}
    for clip in progress(clips, what):
        for i in range(repeats + 1):
            for name, arm in arms.items():
                timing = arm(clip.samples)
                if i > 0:
                    found[name].append(timing)
    rows = []
    for name, timings in found.items():
        base = found["generate(), edge" if name.endswith("edge") else "generate(), cloud"]
        rows.append({
            "arm": name,
            "first_ms": 1000 * median(t.first_s for t in timings),
            "total_ms": 1000 * median(t.total_s for t in timings),
            "tokens_per_s": median(t.tokens_per_s for t in timings),
            "first_ratio": median(t.first_s / b.first_s for t, b in zip(timings, base, strict=True)),
            "total_ratio": median(t.total_s / b.total_s for t, b in zip(timings, base, strict=True)),
            "speed_ratio": median(t.tokens_per_s / b.tokens_per_s for t, b in zip(timings, base, strict=True)),
            "num_ids": median(t.num_ids for t in timings),
        })  # fmt: skip
    return rows


@torch.inference_mode()
def one_shot(
    thinker: Thinker, stock: Any, samples: np.ndarray, tell: Callable[[int], None] | None = None, **more: Any
) -> Timing:
    """What a person would write: collect the audio, then extract, encode, prefill and decode in one call."""
    started, clock = time.perf_counter(), Clock(tell)
    mel = StreamingLogMel()
    windows = [*mel.push(samples), *mel.finish()]
    features = torch.cat([window.features(mel.maximum) for window in windows], dim=1)
    num_audio = sum(thinker.tower.num_embeddings(window.n_frames) for window in windows)
    prompt = [*thinker.engine.prompt_ids, *[thinker.shapes.audio_id] * num_audio, *thinker.suffix_ids]
    ids = torch.tensor([prompt])
    streaming = {} if more else {"streamer": clock}  # assisted generation refuses a streamer
    heard = time.perf_counter()
    with FirstForward(*([stock, *more.values()] if more else [])) as prefill:
        out = stock.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            input_features=features[None],
            feature_attention_mask=torch.ones((1, features.shape[1]), dtype=torch.long),
            max_new_tokens=96,
            do_sample=False,
            **streaming,
            **more,
        )
    done, num_ids = time.perf_counter(), out.shape[1] - len(prompt)
    first = clock.at[1] if len(clock.at) > 1 else done
    rest = done - first if len(clock.at) > 1 else done - heard - prefill.seconds
    return Timing(first - started, done - started, max(1, num_ids - 1) / rest, num_ids)


def timed(models: Any, samples: np.ndarray) -> Timing:
    found = run(models, samples)
    return Timing(found.ttft_s, found.total_s, found.tokens_per_s or float("nan"), len(found.ids))


def plot(rows: Sequence[dict[str, Any]]) -> str:
    """First text after the end of the audio, and ids per second, against the turn's length."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4.2), constrained_layout=True)
    names = [n for n in dict.fromkeys(row["arm"] for row in rows) if not n.startswith("generate()")]  # those are 1
    for i, name in enumerate(names):
        mine = [row for row in rows if row["arm"] == name]
        style: dict[str, Any] = {"linestyle": "-" if name.startswith("ours") else "--", "color": f"C{i}"}
        x = [row["seconds"] for row in mine]
        if name not in ASSISTED:  # they give all ids at the end
            left.plot(x, [row["first_ratio"] for row in mine], marker="o", **style)
        right.plot(x, [row["speed_ratio"] for row in mine], marker="o", label=name, **style)
    left.set(title="First text after the end of the audio", yscale="log")
    right.set(title="Ids per second while decoding", ylim=(0, None))
    for axis in (left, right):
        axis.set(ylabel="ratio to transformers' generate()", xlabel="seconds of audio")
        axis.grid(alpha=0.3)
        axis.axhline(1.0, color="black", linewidth=0.8)
    figure.legend(loc="outside right center", fontsize=9)
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / "vs_transformers.png"
    figure.savefig(file, dpi=110)
    return str(file)


if __name__ == "__main__":
    main()
