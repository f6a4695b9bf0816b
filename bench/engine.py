"""Time of one engine step by rows and ids per row, beside transformers' modules and the machine's
limit. Out: a plot.

`python -m bench.engine [--rounds 40] [--context 300]`. Rows of 300 positions; ours on one thread
and on as many as it may take (OMP_NUM_THREADS bounds them; it takes only cores that are free),
torch on one. In each round every arm of a shape runs four times in a row and its last three count,
as a decoding loop would find its caches; medians of paired ratios. The limit of a step is the
larger of two times: its bytes (weights as they are kept, keys and values of its rows) over the read
bandwidth of an array of that size, and its multiplications over the rate of a large matrix product;
both measured here, on one thread and on all.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.common import median, panels, progress, saved, table_of, write
from bench.engine_limits import PROMPT, Arm, limit_ms
from bench.engine_stock import stock_cache, stock_step
from bench.keep import options_of
from streamer.model.engines.engine import Engine, Row
from streamer.model.engines.load import load_weights
from streamer.model.engines.stock import load_stock
from streamer.model.engines.text import TextModel
from streamer.model.engines.tower import AudioTower
from streamer.model.kernels.helpers import Crew
from streamer.model.kernels.text import FastText
from streamer.model.kernels.threads import the_crew
from streamer.model.kernels.tower import FastTower
from streamer.model.thinker import resolve, shapes_of

SPARE = 64
NUM_ROWS = (1, 4, 16, 64)
NUM_IDS = (1, 2, 5, 9)
STEP_COLUMNS = {  # of all threads: shared
    "model": "model",
    "rows": "rows",
    "q": "ids",
    "ms": "ms",
    "torch_ratio": "torch / ours",
    "stock_ratio": "modules / ours",
    "limit_ms": "limit ms",
    "reached": "of the limit",
    "to_one": "to 1 x 1",
    "shared_ratio": "",
    "shared_ms": "ms",
    "shared_limit_ms": "limit ms",
    "shared_reached": "of the limit",
    "shared_to_one": "to 1 x 1",
}
TOWER_COLUMNS = {
    "model": "model",
    "ms": "window ms",
    "torch_ratio": "torch / ours",
    "stock_ratio": "stock tower / ours",
}
STYLES: dict[str, dict[str, Any]] = {
    "ms": {"marker": "o"},
    "shared_ms": {"marker": "x", "linewidth": 0.8},
    "stock": {"linestyle": ":"},
    "limit_ms": {"linestyle": "--", "linewidth": 0.8},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=40, help="rounds of each shape, after one that is dropped"
    )
    parser.add_argument(
        "--context", type=int, default=300, help="positions of a row: 25 per second, 1500 for 60 s"
    )
    options = options_of(parser)
    torch.set_num_threads(1)
    rows = []
    for role in ("edge", "cloud"):
        rows += steps_of(role, options.rounds, options.context)
        rows.append(tower_of(role, options.rounds))
    threads = the_crew().num_threads
    steps, towers = ([row for row in rows if row["what"] == what] for what in ("step", "tower"))
    print(table_of(steps, STEP_COLUMNS | {"shared_ratio": f"{threads} threads"}))
    print(table_of(towers, TOWER_COLUMNS | {"shared_ratio": f"{threads} threads"}))
    print("written:", write("engine", rows), plot(steps))


def steps_of(role: str, rounds: int, context: int) -> list[dict[str, Any]]:
    """Every shape of one model."""
    directory = resolve("embedded", role)
    shape = shapes_of(directory).text
    texts = [
        FastText(load_weights(directory, torch.float32, "cpu"), shape, Crew(1)),
        FastText(load_weights(directory, torch.float32, "cpu"), shape),
        TextModel(load_weights(directory, torch.float32, "cpu"), shape),
    ]
    fast, shared, plain = (
        Engine(text, text.slots(max(NUM_ROWS), PROMPT + context + SPARE), [5] * PROMPT)
        for text in texts
    )
    for engine in (fast, shared, plain):
        for slot in [engine.open() for _ in range(max(NUM_ROWS))]:
            engine.step([Row(slot, PROMPT, [7] * context, num_logits=0)])
    stock = load_stock(directory)
    found: list[dict[str, Any]] = []
    for rows in progress(NUM_ROWS, role):
        cache = stock_cache(stock, rows, context)
        for q in NUM_IDS:
            given = [Row(slot, PROMPT + context, [9] * q, num_logits=q) for slot in range(rows)]
            arms = {
                "ours": lambda given=given: fast.step(given),
                "shared": lambda given=given: shared.step(given),
                "torch": lambda given=given: plain.step(given),
                "stock": lambda cache=cache, q=q, rows=rows: stock_step(stock, cache, rows, q),
            }
            times = interleaved(arms, rounds)
            row = {
                "what": "step",
                "model": role,
                "rows": rows,
                "q": q,
                "context": context,
                **figures(times),
            }
            for kind, threads in (("", 1), ("shared_", the_crew().num_threads)):
                row[f"{kind}limit_ms"] = limit_ms(fast, rows, q, context, threads)
                row[f"{kind}reached"] = row[f"{kind}limit_ms"] / row[f"{kind}ms"]
                row[f"{kind}to_one"] = row[f"{kind}ms"] / (found[0] if found else row)["ms"]
            found.append(row)
    return found


def tower_of(role: str, rounds: int) -> dict[str, Any]:
    """One whole window through the audio tower."""
    directory = resolve("embedded", role)
    weights = load_weights(directory, torch.float32, "cpu")
    shape = shapes_of(directory).audio
    fast = FastTower(dict(weights), shape, Crew(1))
    shared = FastTower(dict(weights), shape)
    plain = AudioTower(dict(weights), shape)
    stock = load_stock(directory)
    features = 0.5 * torch.randn(1, 128, 200)
    window = features.numpy()
    length = torch.tensor([200])
    with torch.inference_mode():
        times = interleaved(
            {
                "ours": lambda: fast.encode(window),
                "shared": lambda: shared.encode(window),
                "torch": lambda: plain.encode(window),
                "stock": lambda: stock.model.audio_tower(features[0], feature_lens=length),
            },
            rounds,
        )
    return {"what": "tower", "model": role, **figures(times)}


def interleaved(arms: dict[str, Arm], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of every arm in every round."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    for i in range(rounds + 1):
        for name, arm in arms.items():
            arm()
            started = time.perf_counter()
            for _ in range(3):
                arm()
            if i:
                times[name].append(1000 * (time.perf_counter() - started) / 3)
    return times


def figures(times: dict[str, list[float]]) -> dict[str, float]:
    ours = times["ours"]
    ratios = {
        f"{n}_ratio": median(t / o for t, o in zip(times[n], ours, strict=True))
        for n in ("torch", "stock")
    }
    gain = median(o / s for o, s in zip(ours, times["shared"], strict=True))
    return {
        "ms": median(ours),
        "ms_p95": float(np.percentile(ours, 95)),
        **ratios,
        "shared_ms": median(ours) / gain,
        "shared_ratio": gain,
    }


def plot(rows: Sequence[dict[str, Any]]) -> Path:
    """Milliseconds per step against rows, one panel per model."""
    figure, axes = panels(1, 2, (12, 4.4), sharey=True)
    for axis, model in zip(axes, ("edge", "cloud"), strict=True):
        for i, q in enumerate(NUM_IDS):
            mine = [row for row in rows if row["model"] == model and row["q"] == q]
            x = [row["rows"] for row in mine]
            stock = [row["ms"] * row["stock_ratio"] for row in mine]
            axis.plot(x, stock, color=f"C{i}", **STYLES["stock"])
            for name in ("ms", "shared_ms", "limit_ms"):
                label = f"{q} ids per row" if name == "ms" else None
                y = [row[name] for row in mine]
                axis.plot(x, y, color=f"C{i}", label=label, **STYLES[name])
        title = f"{model}, {rows[0]['context']} positions"
        axis.set(title=title, xlabel="rows", xscale="log", yscale="log")
        axis.set_xticks(NUM_ROWS, [str(rows) for rows in NUM_ROWS])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("ms per step")
    labels = {"shared_ms": f"up to {the_crew().num_threads} threads"}
    labels |= {"stock": "transformers' modules, one thread"}
    labels |= {"limit_ms": "the machine's limit, one thread"}
    for name, label in labels.items():
        axes[1].plot([], [], color="black", label=label, **STYLES[name])
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside right center", fontsize=9)
    return saved(figure, "engine")


if __name__ == "__main__":
    main()
