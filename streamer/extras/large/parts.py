"""A checkpoint, converted to 8 or 4 bits part by part.

One matrix is in memory as float32 at a time, and the largest comes first, while nothing else is
there: so the peak is the memory of the engine itself.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from streamer.extras.large.matrix import Matrix, pack
from streamer.model.checkpoint.layout import EMBEDDING, Shapes, bits_of
from streamer.model.engines.engine import arrays_of
from streamer.model.engines.load import Tensors

Take = Callable[[str], Tensor]
Part = Mapping[str, Any]  # of a model: tensors, and matrices in few bits
REST = "rest"  # the part without matrices: embedding, convolutions, the tower's ends
_FIELDS = ("data", "scales", "size")  # of a matrix, as it is kept


def names_of(shapes: Shapes) -> list[str]:
    """Every part, in the order in which they are made."""
    text = [f"text.{i}" for i in range(shapes.text.layers)]
    return ["head", REST, *text, *(f"tower.{i}" for i in range(shapes.audio.layers))]


def parts_of(directory: Path, shapes: Shapes, engine: str) -> Iterator[tuple[str, Part]]:
    """(name, what it holds). Raises ModelError."""
    tensors = Tensors(directory)
    for name in names_of(shapes):
        yield name, part_of(name, tensors.take, shapes, engine)
        with suppress(AttributeError, OSError):  # glibc keeps what was freed between matrices
            ctypes.CDLL(None).malloc_trim(0)


def part_of(name: str, take: Take, shapes: Shapes, engine: str) -> Part:
    """One of `names_of`, from tensors by their transformers 4.x names."""
    form = bits_of(engine, name)
    if name == "head":
        which = EMBEDDING if shapes.text.tied else "lm_head.weight"
        return {"norm": take("model.norm.weight").float(), "head": pack(take(which), *form)}
    if name == REST:
        ends = {each: take(each).float() for each in shapes.audio.ends()}
        return ends | {EMBEDDING: take(EMBEDDING).bfloat16()}
    half, i = name.split(".")
    shape = shapes.text if half == "text" else shapes.audio
    return {
        field: pack(array, *form) if array.ndim == 2 else array.float()
        for field, array in arrays_of(take, shape, int(i))
    }


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
