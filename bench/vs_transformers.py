"""Speed beside transformers' own generate(): same weights, clips, machine and run.

    python -m bench.vs_transformers [--num 8] [--lengths 3 10 30 60] [--arms NAME ...]

generate() gets the cheapest equal feature extraction (the clip's own length, no padding to 300 s)
and the same prompt. Its time counts from the end of the audio: extract, encode, prefill, decode.
Ours hears while the audio arrives, its last 2 s in real time, so little remains. tokens/s counts
the tokens after the first text over the time after it.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.arms import Timing, models_of, run_paced
from bench.clips import Clip, held_out
from bench.common import lines, median, options_of, panels, progress, saved, table_of, write
from streamer.core.audio.turn import trimmed
from streamer.model.audio.mel import StreamingLogMel, num_embeddings
from streamer.model.engines.load import load_stock

LENGTHS = (3, 10, 30, 60)
MODES = ("edge", "cloud", "exact", "gated")
BASES = ("generate(), edge", "generate(), cloud")
ARMS = (*BASES, *MODES)
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
Arm = Callable[[np.ndarray], Timing]


class Clock:
    """A transformers streamer that notes the time of each put; the first put is the prompt."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        self.at.append(time.perf_counter())

    def end(self) -> None:
        pass


@torch.inference_mode()
def one_shot(thinker: Any, stock: Any, samples: np.ndarray) -> Timing:
    """Plain use of generate(): extract, encode, prefill and decode after all audio is there."""
    started = time.perf_counter()
    mel = StreamingLogMel()
    windows = [*mel.push(trimmed(samples)), *mel.finish()]
    features = torch.from_numpy(np.concatenate([w.features(mel.maximum) for w in windows], 1))
    audio = [thinker.shapes.audio_id] * sum(num_embeddings(w.raw.shape[1]) for w in windows)
    prompt = [*thinker.engine.prompt_ids, *audio, *thinker.suffixes[""]]
    ids = torch.tensor([prompt])
    clock = Clock()
    out = stock.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        input_features=features[None],
        feature_attention_mask=torch.ones((1, features.shape[1]), dtype=torch.long),
        max_new_tokens=96,
        do_sample=False,
        streamer=clock,
    )
    done, first = time.perf_counter(), clock.at[1]
    num_ids = out.shape[1] - len(prompt)
    return Timing(first - started, done - started, max(1, num_ids - 1) / (done - first), num_ids)


def make_arms(threads: int, chosen: Sequence[str]) -> dict[str, Arm]:
    """The chosen arms and both of BASES, on the same weights. threads: of generate()'s arms."""
    ours = {mode: models_of(mode=mode) for mode in MODES if mode in chosen}
    for models in ours.values():
        models.load()
    edge, cloud = models_of(mode="exact").pair
    assert edge is not None
    assert cloud is not None
    own = torch.get_num_threads()  # as loading the models has set it
    stock_edge, stock_cloud = load_stock(edge.directory), load_stock(cloud.directory)
    theirs: dict[str, Arm] = {
        BASES[0]: functools.partial(one_shot, edge, stock_edge),
        BASES[1]: functools.partial(one_shot, cloud, stock_cloud),
    }
    arms = {name: _with_threads(threads, arm) for name, arm in theirs.items()}
    for name, models in ours.items():
        arms[name] = _with_threads(own, functools.partial(run_paced, models))
    return arms


def _with_threads(num: int, arm: Arm) -> Arm:
    def run_it(samples: np.ndarray) -> Timing:
        torch.set_num_threads(num)
        return arm(samples)

    return run_it


def compare(
    arms: dict[str, Arm], clips: Sequence[Clip], repeats: int, what: str
) -> list[dict[str, Any]]:
    """Each clip through every arm in turn; ratios are medians of pairs of the same clip."""
    found: dict[str, list[Timing]] = {name: [] for name in arms}
    for clip in progress(clips, what):
        for i in range(repeats + 1):
            for name, arm in arms.items():
                timing = arm(clip.samples)
                if i > 0:  # the first run warms up
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
            }
        )
    return rows


def plot(rows: Sequence[dict[str, Any]]) -> Path:
    """First text and tokens per second over those of generate(), against the turn's length."""
    figure, axes = panels(1, 2, (10, 4))
    titles = ("First text after the end of the audio", "Tokens per second while decoding")
    for axis, key, title in zip(axes, ("first_ratio", "speed_ratio"), titles, strict=True):
        lines(axis, [row for row in rows if row["arm"] not in BASES], "arm", "seconds", key)
        axis.set(title=title, xlabel="seconds of audio", ylabel="ratio to generate()")
        axis.axhline(1.0, color="black", linewidth=0.8)
    axes[0].set(yscale="log")
    axes[1].legend()
    return saved(figure, "vs_transformers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num", type=int, default=8, help="clips of each length")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each clip after a warm-up")
    parser.add_argument("--threads", type=int, default=2, help="of generate()")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="seconds of audio")
    told = f"of {'; '.join(ARMS)}; both of {' and '.join(BASES)} always run"
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS, metavar="NAME", help=told)
    options = options_of(parser)
    arms = make_arms(options.threads, options.arms)
    rows = []
    for seconds in sorted(options.lengths):
        clips = held_out(options.num, seconds)
        compared = compare(arms, clips, options.repeats, f"{seconds} s")
        rows += [row | {"seconds": seconds} for row in compared]
    print(table_of(rows, COLUMNS))
    print("edge against generate() of the edge, all others against that of the cloud")
    print("written:", write("vs_transformers", rows), plot(rows))


if __name__ == "__main__":
    main()
