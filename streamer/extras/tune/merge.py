"""A model directory and an adapter in; a directory in the same layout with the sums out.

File by file, so that no more than one shard is in memory. What the adapter does not touch (vision,
talker, vocoder) is copied as it is: names, shards and types stay those of the release.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from streamer.extras.tune.lora import plain_name
from streamer.model.checkpoint.weights import wanted_name, weight_files

A, B = ".lora_A.weight", ".lora_B.weight"
PEFT = "base_model.model."


def merge(directory: Path, adapter: Mapping[str, Tensor], scale: float, out: Path) -> None:
    """Write `directory` with the adapter added into `out`, which is empty. Raises OSError where
    there is no room, SafetensorError for shards that cannot be read."""
    changes = {
        plain_name(name.removeprefix(PEFT).removesuffix(A)) + ".weight": (
            weight,
            adapter[name.removesuffix(A) + B],
        )
        for name, weight in adapter.items()
        if name.endswith(A)
    }
    weights = weight_files(directory)
    for file in sorted(directory.iterdir()):
        if file.is_file() and file.suffix != ".safetensors":
            shutil.copyfile(file, out / file.name)
    for file in weights:
        _merge_file(file, changes, scale, out / file.name)
    if changes:
        raise ValueError(f"no tensor for {next(iter(changes))}")


def _merge_file(
    file: Path, changes: dict[str, tuple[Tensor, Tensor]], scale: float, out: Path
) -> None:
    """One shard; takes what it used out of `changes`."""
    with safe_open(file, framework="pt") as shard:
        names = list(shard.keys())
        if not any(wanted_name(name) in changes for name in names):
            shutil.copyfile(file, out)
            return
        tensors = {name: shard.get_tensor(name) for name in names}
        metadata = shard.metadata()
    for name, weight in tensors.items():
        pair = changes.pop(wanted_name(name) or "", None)
        if pair is not None:
            down, up = (part.float() for part in pair)
            tensors[name] = torch.add(weight.float(), up @ down, alpha=scale).to(weight.dtype)
    save_file(tensors, out, metadata or {"format": "pt"})
