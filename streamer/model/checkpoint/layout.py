"""What tensors a checkpoint must hold. In: Shapes, a directory. Out: its tensors, or a ModelError.

Only headers are read. A config that does not fit its weights would fail somewhere inside a product,
or, worse, run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from streamer.model.checkpoint.headers import FLOATS, Entry, entries
from streamer.model.checkpoint.shapes import AudioShape, Shapes, TextShape
from streamer.model.checkpoint.weights import ModelError

_LAYER = re.compile(r"^(model|audio_tower)\.layers\.(\d{1,9})\.")


def check_layout(directory: Path, shapes: Shapes) -> list[Entry]:
    """The tensors; ModelError unless each is there, once, in the shape that config.json says."""
    listed = list(entries(directory))
    if not listed:
        raise ModelError(directory, "no weights of a Qwen2.5-Omni thinker in its safetensors files")
    found: dict[str, Entry] = {}
    for entry in listed:
        if found.setdefault(entry.name, entry) is not entry:
            raise ModelError(
                directory, f"{entry.name!r} is there twice; keep the files of one save only"
            )
    for name, shape in expected(shapes):
        _check_entry(directory, name, shape, found.get(name))
    _check_depth(directory, shapes, found)
    return listed


def _check_entry(directory: Path, name: str, shape: tuple[int, ...], entry: Entry | None) -> None:
    if entry is None:
        raise ModelError(directory, f"the weights lack {name!r}; the checkpoint is incomplete")
    if entry.shape != shape:
        is_not = f"is {list(entry.shape)} where config.json makes it {list(shape)}"
        raise ModelError(
            directory, f"{name!r} {is_not}; config and weights belong to different models"
        )
    if entry.dtype not in FLOATS:
        raise ModelError(
            directory, f"{name!r} is {entry.dtype}; give weights in {', '.join(FLOATS)}"
        )


def _check_depth(directory: Path, shapes: Shapes, names: Iterable[str]) -> None:
    """A model cut off after some of its layers fits tensor by tensor, and talks nonsense."""
    depths = {"model": shapes.text.layers, "audio_tower": shapes.audio.layers}
    for name in names:
        if (layer := _LAYER.match(name)) and int(layer[2]) >= depths[layer[1]]:
            beyond = f"{name!r} is beyond the {depths[layer[1]]} layers of config.json"
            raise ModelError(directory, f"{beyond}; config and weights belong to different models")


def expected(shapes: Shapes) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(name, shape) of every tensor that is used."""
    yield from text_layout(shapes.text)
    yield from _audio_ends(shapes.audio)
    for i in range(shapes.audio.layers):
        yield from _audio_layer(f"audio_tower.layers.{i}.", shapes.audio)


def text_layout(text: TextShape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(name, shape) of every tensor of the language model."""
    yield "model.embed_tokens.weight", (text.vocab, text.hidden)
    yield "model.norm.weight", (text.hidden,)
    if not text.tied:
        yield "lm_head.weight", (text.vocab, text.hidden)
    for i in range(text.layers):
        yield from _text_layer(f"model.layers.{i}.", text)


def _text_layer(p: str, s: TextShape) -> Iterator[tuple[str, tuple[int, ...]]]:
    for name, heads in (("q", s.heads), ("k", s.kv_heads), ("v", s.kv_heads)):
        yield f"{p}self_attn.{name}_proj.weight", (heads * s.head_dim, s.hidden)
        yield f"{p}self_attn.{name}_proj.bias", (heads * s.head_dim,)
    yield p + "self_attn.o_proj.weight", (s.hidden, s.heads * s.head_dim)
    yield p + "input_layernorm.weight", (s.hidden,)
    yield p + "post_attention_layernorm.weight", (s.hidden,)
    yield p + "mlp.gate_proj.weight", (s.ffn, s.hidden)
    yield p + "mlp.up_proj.weight", (s.ffn, s.hidden)
    yield p + "mlp.down_proj.weight", (s.hidden, s.ffn)


def _audio_ends(s: AudioShape) -> Iterator[tuple[str, tuple[int, ...]]]:
    sizes = {
        "conv1": (s.width, s.num_mels, 3),
        "conv2": (s.width, s.width, 3),
        "ln_post": (s.width,),
        "proj": (s.output, s.width),
    }
    for name, size in sizes.items():
        yield f"audio_tower.{name}.weight", size
        yield f"audio_tower.{name}.bias", size[:1]


def _audio_layer(p: str, s: AudioShape) -> Iterator[tuple[str, tuple[int, ...]]]:
    square = (s.width, s.width)
    wide = (s.ffn, s.width)
    sizes = {
        "self_attn.q_proj": square,
        "self_attn.v_proj": square,
        "self_attn.out_proj": square,
        "fc1": wide,
        "fc2": wide[::-1],
        "self_attn_layer_norm": (s.width,),
        "final_layer_norm": (s.width,),
    }
    for name, size in sizes.items():
        yield f"{p}{name}.weight", size
        yield f"{p}{name}.bias", size[:1]
    yield f"{p}self_attn.k_proj.weight", square  # the only one without a bias
