"""Time of one step at the published sizes, random weights. Out: a table, JSON lines.

`python -m bench.large [--device cpu] [--models 3B] [--layers 3]`, 3 minutes and 4 GB: some layers
and the head of the model in float32, in bfloat16, in 8 and in 4 bits, 300 positions.
`--device cuda --models 3B 7B --layers 36`: the replayed CUDA graph against the same step without
fixed shapes. All arms in turn, medians; beside them what the copy bandwidth and a large product of
the device would allow. `--clips 10`: what 8 and 4 bits cost the shipped cloud model, as its
accuracy on held-out clips with its own weights and with rounded ones.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bench.common import mean, median, progress, table_of, write
from bench.keep import options_of
from streamer.model.checkpoint.layout import text_layout
from streamer.model.checkpoint.room import EMBEDDING
from streamer.model.checkpoint.shapes import TextShape
from streamer.model.engines.cuda_graphs import GraphText
from streamer.model.engines.engine import Engine, Row
from streamer.model.engines.text import TextModel
from streamer.model.few_bits.model import FewBitsText
from streamer.model.few_bits.parts import REST, part_of

# hidden, layers, heads, kv_heads, head_dim, ffn, vocab, ...: the release's config.json
SHAPES = {
    "3B": TextShape(2048, 36, 16, 2, 128, 11_008, 151_936, 1e6, 1e-6, 32_768, False),
    "7B": TextShape(3584, 28, 28, 4, 128, 18_944, 152_064, 1e6, 1e-6, 32_768, False),
    "toy": TextShape(64, 2, 4, 2, 16, 96, 500, 1e6, 1e-6, 32_768, False),
}


def int8(weights: dict[str, Tensor], shape: TextShape) -> FewBitsText:
    return few_bits(weights, shape, "int8")


def int4(weights: dict[str, Tensor], shape: TextShape) -> FewBitsText:
    return few_bits(weights, shape, "int4")


def few_bits(weights: dict[str, Tensor], shape: TextShape, engine: str) -> FewBitsText:
    names = ["head", *(f"text.{i}" for i in range(shape.layers))]
    parts = {name: part_of(name, weights.__getitem__, shape, engine) for name in names}
    return FewBitsText(parts | {REST: {EMBEDDING: weights[EMBEDDING].bfloat16()}}, shape)


KINDS: dict[str, dict[str, tuple[Callable[..., TextModel], torch.dtype]]] = {
    "cpu": {
        "float32": (TextModel, torch.float32),
        "bfloat16": (TextModel, torch.bfloat16),
        "int8": (int8, torch.float32),
        "int4": (int4, torch.float32),
    },
    "cuda": {"graph": (GraphText, torch.bfloat16), "ragged": (TextModel, torch.bfloat16)},
}
STEPS = ((1, 1), (1, 5), (4, 1), (16, 1), (16, 5))  # rows, ids of each
CONTEXT = 300
PROMPT = 6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=KINDS, default="cpu")
    parser.add_argument("--models", nargs="+", choices=SHAPES, default=["3B"])
    parser.add_argument("--layers", type=int, default=3, help="of the model's own")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--clips", type=int, default=0, help="of each length, for the accuracy")
    options = options_of(parser)
    if options.device == "cuda" and not torch.cuda.is_available():
        print(
            f"bench.large: no GPU that torch {torch.__version__} can use; run it where one is",
            file=sys.stderr,
        )
        return 2
    torch.set_num_threads(options.threads)
    rows = [row for name in options.models for row in steps_of(name, options)]
    print(table_of(rows))
    rounded = heard(options.clips) if options.clips else []
    if rounded:
        print(table_of(rounded))
    print("written:", write("large", [vars(options), *rows, *rounded]))
    return 0


def random_weights(
    shape: TextShape, dtype: torch.dtype, device: str, seed: int = 0
) -> dict[str, Tensor]:
    """A text model's tensors by their names, of a size that keeps activations near 1."""
    generator = torch.Generator(device).manual_seed(seed)

    def drawn(name: str, size: tuple[int, ...]) -> Tensor:
        if name.endswith("norm.weight"):
            return torch.ones(size, dtype=dtype, device=device)
        scale = 0.1 if len(size) == 1 else size[-1] ** -0.5
        return scale * torch.randn(size, generator=generator, dtype=dtype, device=device)

    return {name: drawn(name, size) for name, size in text_layout(shape)}


def steps_of(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Every shape of one model: milliseconds of each kind, and of the device's limit."""
    whole = SHAPES[name]
    shape = replace(whole, layers=min(options.layers, whole.layers))
    engines = {
        kind: engine_of(model(random_weights(shape, dtype, options.device), shape))
        for kind, (model, dtype) in KINDS[options.device].items()
    }
    found = []
    for num_rows, q in progress(STEPS, name):
        given = [Row(slot, PROMPT + CONTEXT, [9] * q, num_logits=q) for slot in range(num_rows)]
        arms = {kind: lambda e=e, given=given: e.step(given) for kind, e in engines.items()}
        row = {"model": name, "layers": shape.layers, "rows": num_rows, "ids": q}
        row |= timed(arms, options.rounds)  # type: ignore[arg-type]
        found.append(row | {"limit": limit_ms(shape, num_rows, q, options.device)})
    return found


def engine_of(text: TextModel) -> Engine:
    """All rows that a step needs, each with its context."""
    most = max(rows for rows, _ in STEPS)
    engine = Engine(text, text.slots(most, PROMPT + CONTEXT + 16), [5] * PROMPT)
    for slot in [engine.open() for _ in range(most)]:
        engine.step([Row(slot, PROMPT, [7] * CONTEXT, num_logits=0)])
    return engine


def timed(arms: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Milliseconds until the device is done; the arms in turn, medians, two rounds dropped."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    for i in range(rounds + 2):
        for name, arm in arms.items():
            started = time.perf_counter()
            arm()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if i > 1:
                times[name].append(1000 * (time.perf_counter() - started))
    return {name: median(of_arm) for name, of_arm in times.items()}


def limit_ms(s: TextShape, rows: int, q: int, device: str) -> float:
    """What the device needs for the bytes of a step in bfloat16, or for its products."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    size, side = (2**30, 8192) if device == "cuda" else (2**26, 1024)
    a = torch.ones(size // dtype.itemsize, dtype=dtype, device=device)
    b = torch.empty_like(a)
    square = torch.ones(side, side, dtype=dtype, device=device)
    best = timed({"copy": lambda: b.copy_(a), "product": lambda: square @ square}, 5)
    weights = sum(x.numel() for n, x in random_meta(s).items() if "embed" not in n)
    bytes_read = 2 * (weights + rows * 2 * s.layers * s.kv_heads * s.head_dim * CONTEXT)
    products = rows * q * (weights + 2 * s.layers * s.heads * s.head_dim * CONTEXT)
    return max(bytes_read * best["copy"] / (2 * size), products * best["product"] / side**3)


def random_meta(shape: TextShape) -> dict[str, Tensor]:
    return {name: torch.empty(size, device="meta") for name, size in text_layout(shape)}


def heard(num: int) -> list[dict[str, Any]]:
    """The shipped cloud with its own weights and with those of few bits, on the same clips."""
    from bench.arms import Arm, run
    from bench.clips import held_out
    from streamer.config import Config

    rows = []
    kinds = {
        engine: Arm(Config(mode="cloud", engine=engine))  # type: ignore[arg-type]
        for engine in ("fast", "int8", "int4")
    }
    for seconds in (3, 10, 30, 60):
        clips = held_out(num, seconds)
        runs = {name: [run(m, clip.samples) for clip in clips] for name, m in kinds.items()}
        row = {"seconds": seconds, **{name: accuracy(of, clips) for name, of in runs.items()}}
        for name in ("int8", "int4"):
            pairs = zip(runs["fast"], runs[name], strict=True)
            row[f"{name}: same sentence"] = mean(float(a.ids == b.ids) for a, b in pairs)
        rows.append(row)
    return rows


def accuracy(runs: Sequence[Any], clips: Sequence[Any]) -> float:
    """Share of attributes whose level is exactly right."""
    pairs = zip(runs, clips, strict=True)
    return mean(
        float(r.levels.get(name) == level)
        for r, clip in pairs
        for name, level in clip.levels.items()
    )


if __name__ == "__main__":
    sys.exit(main())
