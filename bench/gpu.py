"""Time of one step on a GPU beside its bandwidth's limit, at the published sizes, random weights.
Out: a table.

`python -m bench.gpu [--models 3B 7B]`, bf16, 300 and 1,500 positions, q = 1 and k + 1. "step":
Engine.step until its logits are there; "graph": the replayed graph alone; "ragged": the same step
without fixed shapes. All arms in turn, medians. The limit: the step's bytes (weights once, the keys
and values of its rows) over the measured copy bandwidth, or its multiplications over the measured
rate of a large product, whichever is longer. Without a GPU it says so and ends with status 2;
`--device cpu --models toy` only tries the code.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from bench.common import median, progress, table, write
from bench.keep import options_of
from streamer.model.checkpoint.layout import text_layout
from streamer.model.checkpoint.shapes import TextShape
from streamer.model.engines.cuda_graphs import GraphText
from streamer.model.engines.engine import Engine, Row
from streamer.model.engines.text import TextModel

# hidden, layers, heads, kv_heads, head_dim, ffn, vocab, ...: the release's config.json
SHAPES = {
    "3B": TextShape(2048, 36, 16, 2, 128, 11_008, 151_936, 1e6, 1e-6, 32_768, False),
    "7B": TextShape(3584, 28, 28, 4, 128, 18_944, 152_064, 1e6, 1e-6, 32_768, False),
    "toy": TextShape(64, 2, 4, 2, 16, 96, 500, 1e6, 1e-6, 32_768, False),
}
NUM_ROWS = (1, 4, 16, 64)
CONTEXTS = (300, 1500)
PROMPT = 6
SPARE = 16
CHUNK = 512  # ids per row and step of the contexts' prefill


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=SHAPES, default=["3B", "7B"])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--k", type=int, default=4, help="draft length: q is 1 and k + 1")
    parser.add_argument("--contexts", type=int, nargs="+", default=CONTEXTS, help="positions held")
    parser.add_argument("--rounds", type=int, default=30, help="timed rounds of each shape")
    options = options_of(parser)
    if options.device == "cuda" and not torch.cuda.is_available():
        print(
            f"bench.gpu: no GPU that torch {torch.__version__} can use; run it where one is",
            file=sys.stderr,
        )
        return 2
    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    machine = limits(options.device, dtype)
    rows = [row for name in options.models for row in steps_of(name, options, dtype, machine)]
    names = (
        "model",
        "context",
        "rows",
        "q",
        "step_ms",
        "graph_ms",
        "ragged_ms",
        "limit_ms",
        "reached",
    )
    print(table(names, [[row[name] for name in names] for row in rows]))
    print(
        f"copy {machine['bytes_per_s'] / 1e9:.0f} GB/s, products "
        f"{machine['products_per_s'] / 1e12:.2f} T/s"
    )
    if options.device == "cuda":
        print("written:", write("gpu", [machine | {"gpu": torch.cuda.get_device_name()}, *rows]))
    return 0


def random_weights(
    shape: TextShape, dtype: torch.dtype, device: str, seed: int = 0
) -> dict[str, torch.Tensor]:
    """A text model's tensors by their names, of a size that keeps activations near 1."""
    generator = torch.Generator(device).manual_seed(seed)

    def drawn(name: str, size: tuple[int, ...]) -> torch.Tensor:
        if name.endswith("norm.weight"):
            return torch.ones(size, dtype=dtype, device=device)
        scale = 0.1 if len(size) == 1 else size[-1] ** -0.5
        return scale * torch.randn(size, generator=generator, dtype=dtype, device=device)

    return {name: drawn(name, size) for name, size in text_layout(shape)}


@torch.inference_mode()
def steps_of(
    name: str, options: argparse.Namespace, dtype: torch.dtype, machine: dict[str, float]
) -> list[dict[str, Any]]:
    """Every shape of one model."""
    shape = SHAPES[name]
    device = options.device
    text = GraphText(random_weights(shape, dtype, device), shape, num_ids=(1, options.k + 1))
    slots = text.slots(max(NUM_ROWS), PROMPT + max(options.contexts) + SPARE)
    engine = Engine(text, slots, [5] * PROMPT)
    opened = [engine.open() for _ in range(max(NUM_ROWS))]
    found = []
    for context in options.contexts:
        for slot in opened:
            for at in range(0, context, CHUNK):
                engine.step([Row(slot, PROMPT + at, [7] * min(CHUNK, context - at), num_logits=0)])
        for num_rows in progress(NUM_ROWS, f"{name}, {context} positions"):
            for q in (1, options.k + 1):
                given = [
                    Row(slot, PROMPT + context, [9] * q, num_logits=q) for slot in opened[:num_rows]
                ]
                times = timed(arms(engine, given), options.rounds, device)
                row = {"model": name, "context": context, "rows": num_rows, "q": q} | times
                row["limit_ms"] = limit_ms(text, num_rows, q, context, machine)
                found.append(row | {"reached": row["limit_ms"] / row["step_ms"]})
    return found


def arms(engine: Engine, given: list[Row]) -> dict[str, Callable[[], object]]:
    text = engine.text
    spans = engine._spans(given)
    assert isinstance(text, GraphText)
    ids = [token for row in given for token in row.ids]
    fixed = text.fixed((), spans)
    assert fixed is not None
    engine.step(given)
    captured = text._step_of(fixed)
    return {
        "step_ms": lambda: engine.step(given),
        "graph_ms": lambda: captured.run(captured._table),
        "ragged_ms": lambda: TextModel.step(text, ids, (), spans, engine.slots),
    }


def timed(work: dict[str, Callable[[], object]], rounds: int, device: str) -> dict[str, float]:
    """Milliseconds until the device is done; the arms in turn, medians, two rounds dropped."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for i in range(rounds + 2):
        for name, arm in work.items():
            started = _now(device)
            arm()
            if i > 1:
                times[name].append(1000 * (_now(device) - started))
    return {name: median(of_arm) for name, of_arm in times.items()}


def _now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def limit_ms(text: GraphText, rows: int, q: int, context: int, machine: dict[str, float]) -> float:
    """What the device would need for the same bytes and multiplications."""
    s = text.shape
    layers = text.layers
    weights = sum(
        m.numel() for layer in layers for m in (layer.qkv, layer.out, layer.gate_up, layer.down)
    )
    weights += text.head.numel()
    size = text.head.element_size() * (
        weights + rows * 2 * s.layers * s.kv_heads * s.head_dim * context
    )
    products = rows * q * (weights + 2 * s.layers * s.heads * s.head_dim * context)
    return 1000 * max(size / machine["bytes_per_s"], products / machine["products_per_s"])


def limits(device: str, dtype: torch.dtype) -> dict[str, float]:
    """Bytes per second of a large copy, both ways counted; multiplications per second of a large
    product."""
    size, side = (2**30, 8192) if device == "cuda" else (2**26, 512)
    a = torch.ones(size // dtype.itemsize, dtype=dtype, device=device)
    b = torch.empty_like(a)
    square = torch.ones(side, side, dtype=dtype, device=device)
    times = timed({"copy": lambda: b.copy_(a), "product": lambda: square @ square}, 10, device)
    return {
        "bytes_per_s": 2 * size / times["copy"] * 1000,
        "products_per_s": side**3 / times["product"] * 1000,
    }


if __name__ == "__main__":
    sys.exit(main())
