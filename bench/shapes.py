"""A thinker of a published size with random weights. In: a size. Out: a model directory.

`python -m bench.shapes --size 3b --out DIR [--layers 4]`: the layout of the release: bfloat16 in
shards with an index, names with `thinker.`, nested config.json, generation config, chat template,
and a tokenizer of our own making with the release's special tokens at their ids. What it says is
noise; its memory, its disk and its speed are those of the real model. 3b takes 9 GB, 7b 17 GB.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from bench.shapes_config import GENERATION, PREPROCESSOR, config_of
from bench.shapes_tokenizer import write_tokenizer
from streamer.model.checkpoint.layout import expected
from streamer.model.checkpoint.shapes import AudioShape, Shapes, TextShape

_TOWER = AudioShape(1280, 32, 20, 5120, 128, 100, 2048)
# hidden, layers, heads, kv_heads, head_dim, ffn, vocab, ...: the release's config.json
SIZES = {
    "3b": Shapes(
        TextShape(2048, 36, 16, 2, 128, 11_008, 151_936, 1e6, 1e-6, 32_768, False), _TOWER, 151_646
    ),
    "7b": Shapes(
        TextShape(3584, 28, 28, 4, 128, 18_944, 152_064, 1e6, 1e-6, 32_768, False),
        replace(_TOWER, output=3584),
        151_646,
    ),
    "toy": Shapes(
        TextShape(64, 2, 4, 2, 16, 96, 151_936, 1e6, 1e-6, 32_768, False),
        AudioShape(64, 2, 4, 128, 128, 100, 64),
        151_646,
    ),
}
SHARD_BYTES = 4_000_000_000
SPARE_BYTES = 500_000_000  # tokenizer, and room that a disk should keep
Named = tuple[str, tuple[int, ...]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, required=True)
    parser.add_argument("--out", type=Path, required=True, help="a directory that is made")
    parser.add_argument(
        "--layers", type=int, default=10**6, help="of text model and tower, at most"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.layers < 1:
        parser.error("--layers is less than 1; a model has one at least")
    if options.out.exists() and any(options.out.iterdir()):
        parser.error(f"{options.out} is not empty; give a new directory")
    shapes = of_layers(SIZES[options.size], options.layers)
    if lacking := too_large(shapes, options.out):
        parser.error(lacking)
    write_model(options.out, shapes, options.seed)
    print(f"written: {options.out}, {num_bytes(shapes) / 1e9:.1f} GB of random weights")
    return 0


def of_layers(shapes: Shapes, layers: int) -> Shapes:
    """The same model with at most so many layers in each half."""
    text, audio = shapes.text, shapes.audio
    return replace(
        shapes,
        text=replace(text, layers=min(layers, text.layers)),
        audio=replace(audio, layers=min(layers, audio.layers)),
    )


def num_bytes(shapes: Shapes) -> int:
    """Of the weights in bfloat16."""
    return sum(2 * math.prod(size) for _, size in expected(shapes))


def too_large(shapes: Shapes, out: Path) -> str:
    """Why the disk does not do, in one line; empty where it does."""
    there = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    needed, free = num_bytes(shapes) + SPARE_BYTES, shutil.disk_usage(there).free
    if needed <= free:
        return ""
    told = f"{needed / 1e9:.1f} GB are needed in {there}, {free / 1e9:.1f} GB are free"
    return f"{told}; make room, give another --out, or fewer --layers"


def write_model(out: Path, shapes: Shapes, seed: int = 0, shard_bytes: int = SHARD_BYTES) -> None:
    """Every file of a model directory; one tensor is in memory at a time."""
    out.mkdir(parents=True, exist_ok=True)
    files = {
        "config.json": config_of(shapes),
        "generation_config.json": GENERATION,
        "preprocessor_config.json": PREPROCESSOR,
    }
    for name, content in files.items():
        (out / name).write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    write_tokenizer(out)
    shards = list(_shards(expected(shapes), shard_bytes))
    generator = torch.Generator().manual_seed(seed)
    index: dict[str, str] = {}
    with tqdm(total=num_bytes(shapes), desc=out.name, unit="B", unit_scale=True) as bar:
        for i, tensors in enumerate(shards, 1):
            name = f"model-{i:05}-of-{len(shards):05}.safetensors"
            index |= {f"thinker.{tensor}": name for tensor, _ in tensors}
            _write_shard(out / name, tensors, generator, bar)
    told = {"metadata": {"total_size": num_bytes(shapes)}, "weight_map": index}
    (out / "model.safetensors.index.json").write_text(json.dumps(told, indent=2) + "\n", "utf-8")


def _shards(tensors: Iterable[Named], most: int) -> Iterator[list[Named]]:
    """Tensors in their order, each shard of at most so many bytes, or of one tensor."""
    shard: list[Named] = []
    size = 0
    for named in tensors:
        here = 2 * math.prod(named[1])
        if shard and size + here > most:
            yield shard
            shard, size = [], 0
        shard.append(named)
        size += here
    yield shard


def _write_shard(file: Path, tensors: list[Named], generator: torch.Generator, bar: Any) -> None:
    """The safetensors format, by hand: its library wants a whole shard in memory."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, size in tensors:
        end = at + 2 * math.prod(size)
        header[f"thinker.{name}"] = {"dtype": "BF16", "shape": size, "data_offsets": [at, end]}
        at = end
    told = json.dumps(header).encode()
    told += b" " * (-len(told) % 8)
    with file.open("wb") as stream:
        stream.write(len(told).to_bytes(8, "little") + told)
        for name, size in tensors:
            data = drawn(name, size, generator).view(torch.uint8)
            stream.write(data.numpy().data)
            bar.update(data.numel())


def drawn(name: str, size: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """One tensor, flat, bfloat16, of a size that keeps activations near 1."""
    if len(size) == 1 and ("norm" in name or "ln_post" in name):
        return torch.full((size[0],), float(name.endswith("weight")), dtype=torch.bfloat16)
    scale = 0.1 if len(size) == 1 else math.prod(size[1:]) ** -0.5
    found = torch.empty(math.prod(size), dtype=torch.bfloat16)
    for part in found.split(2**24):
        part.copy_(torch.randn(len(part), generator=generator).mul_(scale))
    return found


if __name__ == "__main__":
    sys.exit(main())
