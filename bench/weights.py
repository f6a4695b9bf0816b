"""Do 8-bit weights pay? In: layers of the 3B thinker with random weights; held-out clips. Out: two
tables.

`python -m bench.weights [--layers 3] [--threads 2] [--num 10]`; 3 minutes, 4 GB. First: one step of
a slice of the 3B model (some of its 36 layers and its head, 300 positions) in float32, in bfloat16
and with 8-bit weights, in turn. Second: what rounding the shipped cloud model's weights costs:
accuracy beside that of its own weights.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from bench.arms import Run, models_of, run
from bench.clips import Clip, held_out
from bench.common import mean, median, progress, table, write
from bench.keep import options_of
from streamer.model.checkpoint.shapes import TextShape
from streamer.model.engines.engine import Engine, Row
from streamer.model.engines.int8 import Int8Text
from streamer.model.engines.text import TextModel

# of Qwen2.5-Omni-3B's thinker, as its config.json says
LAYERS = 36
VOCAB = 151_936
POSITIONS = 300
SHAPES = ((1, 1), (1, 5), (1, 50), (4, 1), (16, 1))  # rows, ids of each
KINDS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": torch.float32, "model": TextModel},
    "bfloat16": {"dtype": torch.bfloat16, "model": TextModel},
    "int8": {"dtype": torch.bfloat16, "model": Int8Text},
}


def shape_of(layers: int) -> TextShape:
    return TextShape(2048, layers, 16, 2, 128, 11_008, VOCAB, 1e6, 1e-6, 32_768, False)


def weights_of(shape: TextShape, dtype: torch.dtype) -> dict[str, Tensor]:
    """Random, but of the right size: time does not depend on what they hold."""
    heads = shape.heads * shape.head_dim
    kv = shape.kv_heads * shape.head_dim
    hidden = shape.hidden
    ends = ("model.embed_tokens.weight", "lm_head.weight")
    sizes: dict[str, tuple[int, ...]] = {
        **dict.fromkeys(ends, (VOCAB, hidden)),
        "model.norm.weight": (hidden,),
    }
    for i in range(shape.layers):
        at = f"model.layers.{i}."
        for name, out in (("q", heads), ("k", kv), ("v", kv)):
            sizes |= {
                f"{at}self_attn.{name}_proj.weight": (out, hidden),
                f"{at}self_attn.{name}_proj.bias": (out,),
            }
        sizes |= {
            f"{at}self_attn.o_proj.weight": (hidden, heads),
            f"{at}mlp.gate_proj.weight": (shape.ffn, hidden),
        }
        sizes |= {
            f"{at}mlp.up_proj.weight": (shape.ffn, hidden),
            f"{at}mlp.down_proj.weight": (hidden, shape.ffn),
        }
        sizes |= {f"{at}{norm}_layernorm.weight": (hidden,) for norm in ("input", "post_attention")}
    return {
        name: torch.full(size, 0.01, dtype=dtype).uniform_(-0.02, 0.02)
        for name, size in sizes.items()
    }


def steps(kind: str, layers: int) -> Iterator[tuple[tuple[int, int], Callable[[], object]]]:
    """Per shape a step to time."""
    shape = shape_of(layers)
    given = KINDS[kind]
    text = given["model"](weights_of(shape, given["dtype"]), shape)
    engine = Engine(
        text, text.slots(max(rows for rows, _ in SHAPES) + 1, POSITIONS + 64), range(POSITIONS)
    )
    slots = [engine.open() for _ in range(max(rows for rows, _ in SHAPES))]
    for rows, q in SHAPES:
        batch = [Row(slot, POSITIONS, range(q), num_logits=min(q, 5)) for slot in slots[:rows]]
        yield (rows, q), lambda batch=batch: engine.step(batch)  # type: ignore[misc]


def timed(layers: int, rounds: int) -> dict[str, dict[tuple[int, int], float]]:
    """Milliseconds per kind and shape, medians; the kinds take turns."""
    work = {kind: dict(steps(kind, layers)) for kind in progress(list(KINDS), "models")}
    took: dict[str, dict[tuple[int, int], list[float]]] = {
        kind: {s: [] for s in SHAPES} for kind in KINDS
    }
    for _ in progress(range(rounds + 1), "steps"):
        for shape in SHAPES:
            for kind in KINDS:
                started = time.perf_counter()
                work[kind][shape]()
                took[kind][shape].append(1_000 * (time.perf_counter() - started))
    return {
        kind: {shape: median(times[1:]) for shape, times in of.items()} for kind, of in took.items()
    }


def accuracy(runs: Sequence[Run], clips: Sequence[Clip]) -> float:
    """Share of attributes whose level is exactly right."""
    pairs = zip(runs, clips, strict=True)
    return mean(
        float(r.levels.get(name) == level)
        for r, clip in pairs
        for name, level in clip.levels.items()
    )


def heard(num: int) -> list[dict[str, Any]]:
    """The shipped cloud with its own weights and with 8-bit ones, on the same clips."""
    rows = []
    kinds = {engine: models_of(mode="cloud", engine=engine) for engine in ("fast", "int8")}
    for seconds in (3, 10, 30, 60):
        clips = held_out(num, seconds)
        runs = {
            name: [run(m, clip.samples) for clip in progress(clips, f"{seconds} s")]
            for name, m in kinds.items()
        }
        right = {name: accuracy(of, clips) for name, of in runs.items()}
        same = mean(float(a.ids == b.ids) for a, b in zip(runs["fast"], runs["int8"], strict=True))
        rows.append(
            {
                "seconds": seconds,
                "num": num,
                "accuracy": right["fast"],
                "int8": right["int8"],
                "same": same,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=3, help=f"of the 3B model's {LAYERS}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--num", type=int, default=10, help="clips of each length")
    options = options_of(parser)
    torch.set_num_threads(options.threads)
    took = timed(options.layers, options.rounds)
    best = {shape: min(took["float32"][shape], took["bfloat16"][shape]) for shape in SHAPES}
    rows = [
        [f"{s[0]} x {s[1]}", *(took[kind][s] for kind in KINDS), took["int8"][s] / best[s]]
        for s in SHAPES
    ]
    print(
        table(["rows x ids", *(f"{kind}, ms" for kind in KINDS), "int8 / the faster of both"], rows)
    )
    torch.set_num_threads(1)
    listened = heard(options.num)
    header = ["seconds", "accuracy", "with 8-bit weights", "same sentence"]
    print(table(header, [[r["seconds"], r["accuracy"], r["int8"], r["same"]] for r in listened]))
    lines = [{"rows": r, "q": q, **{kind: took[kind][r, q] for kind in KINDS}} for r, q in SHAPES]
    print(
        "written:",
        write(
            "weights", [{"layers": options.layers, "threads": options.threads}, *lines, *listened]
        ),
    )


if __name__ == "__main__":
    main()
