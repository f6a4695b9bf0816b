"""A checkpoint as an engine of few bits wants it, by parts. In: a directory. Out: named bytes.

One matrix is in memory as float32 at a time, and the largest comes first, when nothing else is
there yet: the peak is what the engine itself takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from streamer.model.checkpoint.room import EMBEDDING
from streamer.model.checkpoint.shapes import Shapes, TextShape
from streamer.model.engines import few_bits_graphs as graphs
from streamer.model.engines.few_bits import Form
from streamer.model.engines.tensors import Tensors

REST = "rest"  # the part that is no graph: embedding, convolutions, the tower's ends
SIDES = ("before", "after")  # of a layer's attention
_ENDS = ("conv1", "conv2", "ln_post", "proj")


def names_of(shapes: Shapes) -> list[str]:
    """Every part, in the order in which they are made."""
    tower = [f"tower.{i}.{side}" for i in range(shapes.audio.layers) for side in SIDES]
    head, *text = text_names(shapes.text)
    return [head, REST, *text, *tower]


def text_names(shape: TextShape) -> list[str]:
    """The parts of the language model alone, but for its embedding."""
    return ["head", *(f"text.{i}.{side}" for i in range(shape.layers) for side in SIDES)]


def parts_of(directory: Path, shapes: Shapes, form: Form) -> Iterator[tuple[str, bytes]]:
    """(name, its bytes): ONNX models, and REST as safetensors. Raises ModelError."""
    tensors = Tensors(directory)
    for name in names_of(shapes):
        yield name, part_of(name, tensors.take, shapes.text, form)


def part_of(name: str, take: graphs.Take, text: TextShape, form: Form) -> bytes:
    """One of `names_of`, from tensors by their transformers 4.x names."""
    if name == "head":
        which = EMBEDDING if text.tied else "lm_head.weight"
        return graphs.head(form, take("model.norm.weight"), take(which), text.eps)
    if name == REST:
        ends = [f"audio_tower.{end}.{kind}" for end in _ENDS for kind in ("weight", "bias")]
        rest = {each: take(each).float() for each in ends}
        return save(rest | {EMBEDDING: take(EMBEDDING).bfloat16()})
    half, i, side = name.split(".")
    prefix = f"{'model' if half == 'text' else 'audio_tower'}.layers.{i}."

    def of_layer(tensor: str) -> Tensor:
        return take(prefix + tensor)

    if half == "tower":
        return (graphs.tower_before if side == "before" else graphs.tower_after)(form, of_layer)
    make = graphs.text_before if side == "before" else graphs.text_after
    return make(form, of_layer, text.eps)
