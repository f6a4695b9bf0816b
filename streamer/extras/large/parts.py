"""A checkpoint, converted to 8 or 4 bits part by part.

One matrix is in memory as float32 at a time, and the largest comes first, while nothing else is
there: so the peak is the memory of the engine itself.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from streamer.extras.large.matrix import Matrix, pack
from streamer.model.checkpoint.layout import EMBEDDING, Shapes, TextShape, bits_of
from streamer.model.engines.load import Tensors

Take = Callable[[str], Tensor]
Part = Mapping[str, Any]  # of a model: tensors, and matrices in few bits
REST = "rest"  # the part without matrices: embedding, convolutions, the tower's ends
_ENDS = ("conv1", "conv2", "ln_post", "proj")
_FIELDS = ("data", "scales", "size")  # of a matrix, as it is kept


def names_of(shapes: Shapes) -> list[str]:
    """Every part, in the order in which they are made."""
    text = [f"text.{i}" for i in range(shapes.text.layers)]
    return ["head", REST, *text, *(f"tower.{i}" for i in range(shapes.audio.layers))]


def parts_of(directory: Path, shapes: Shapes, engine: str) -> Iterator[tuple[str, Part]]:
    """(name, what it holds). Raises ModelError."""
    tensors = Tensors(directory)
    for name in names_of(shapes):
        yield name, part_of(name, tensors.take, shapes.text, engine)
        with suppress(AttributeError, OSError):  # glibc keeps what was freed between matrices
            ctypes.CDLL(None).malloc_trim(0)


def part_of(name: str, take: Take, text: TextShape, engine: str) -> Part:
    """One of `names_of`, from tensors by their transformers 4.x names."""
    form = bits_of(engine, name)
    if name == "head":
        which = EMBEDDING if text.tied else "lm_head.weight"
        return {"norm": take("model.norm.weight").float(), "head": pack(take(which), *form)}
    if name == REST:
        ends = [f"audio_tower.{end}.{kind}" for end in _ENDS for kind in ("weight", "bias")]
        return {each: take(each).float() for each in ends} | {EMBEDDING: take(EMBEDDING).bfloat16()}
    half, i = name.split(".")
    prefix = f"{'model' if half == 'text' else 'audio_tower'}.layers.{i}."
    return (_text if half == "text" else _tower)(form, lambda tensor: take(prefix + tensor))


def _text(form: tuple[int, int], take: Take) -> Part:
    """The fields of a `Layer`."""
    return {
        "norm_in": take("input_layernorm.weight").float(),
        "qkv": pack(_joined(take, (f"self_attn.{p}_proj.weight" for p in "qkv")), *form),
        "qkv_bias": _joined(take, (f"self_attn.{p}_proj.bias" for p in "qkv")).float(),
        "out": pack(take("self_attn.o_proj.weight"), *form),
        "norm_mlp": take("post_attention_layernorm.weight").float(),
        "gate_up": pack(_joined(take, ("mlp.gate_proj.weight", "mlp.up_proj.weight")), *form),
        "down": pack(take("mlp.down_proj.weight"), *form),
    }


def _tower(form: tuple[int, int], take: Take) -> Part:
    """By the names of `AudioTower`; k has no bias in the checkpoint."""
    names = ("self_attn_layer_norm", "final_layer_norm", "self_attn.out_proj", "fc1", "fc2")
    found: dict[str, Any] = {}
    for name in names:
        weight = take(name + ".weight")
        found[name + ".weight"] = pack(weight, *form) if weight.ndim == 2 else weight.float()
        found[name + ".bias"] = take(name + ".bias").float()
    q, v = (take(f"self_attn.{p}_proj.bias").float() for p in "qv")
    qkv = _joined(take, (f"self_attn.{p}_proj.weight" for p in "qkv"))
    bias = torch.cat([q, torch.zeros_like(q), v])
    return found | {"self_attn.qkv": pack(qkv, *form), "self_attn.bias": bias}


def flat(part: Part) -> dict[str, Tensor]:
    """A part as tensors alone, a matrix as three; `whole` is the way back."""
    found: dict[str, Tensor] = {}
    for name, of in part.items():
        matrix = isinstance(of, Matrix)
        found |= {f"{name}:{f}": getattr(of, f) for f in _FIELDS} if matrix else {name: of}
    return found


def whole(tensors: Mapping[str, Tensor]) -> Part:
    """The part that `flat` was given."""
    found: dict[str, Any] = {}
    for key, tensor in tensors.items():
        name, _, field = key.partition(":")
        if not field:
            found[name] = tensor
        elif field == _FIELDS[0]:
            found[name] = Matrix(*(tensors[f"{name}:{each}"] for each in _FIELDS))
    return found


def _joined(take: Take, names: Iterator[str] | Sequence[str]) -> Tensor:
    return torch.cat([take(name) for name in names])
