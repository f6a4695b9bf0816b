"""What tensors a checkpoint must hold. In: Shapes, a directory. Out: nothing, or a ModelError before anything is read.

Only headers are read. A config that does not fit its weights would fail somewhere inside a product, or, worse, run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from streamer.model.shapes import AudioShape, Shapes, TextShape
from streamer.model.weights import ModelError, wanted_name, weight_files

MAX_HEADER_BYTES = 100_000_000  # safetensors' own limit
FLOATS = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class Entry:
    """One wanted tensor as its file's header describes it."""

    name: str  # in transformers 4.x form
    shape: tuple[int, ...]
    dtype: str
    num_bytes: int


def entries(directory: Path) -> Iterator[Entry]:
    """Every wanted tensor of a model directory. Raises ModelError."""
    for file in weight_files(directory):
        for name, entry in _header(file).items():
            known = None if name == "__metadata__" else wanted_name(name)
            if known is None:
                continue
            try:
                first, last = entry["data_offsets"]
                yield Entry(known, tuple(int(n) for n in entry["shape"]), str(entry["dtype"]), last - first)
            except (KeyError, TypeError, ValueError):
                raise ModelError(file, f"describes {name!r} in no known way; copy the file again") from None


def _header(file: Path) -> dict[str, dict[str, list[int]]]:
    """A safetensors file's JSON header; its length comes first, 8 bytes little-endian."""
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > min(MAX_HEADER_BYTES, file.stat().st_size):
                raise ValueError(f"its header claims {length} bytes")
            header = json.loads(stream.read(length))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(file, f"the weights cannot be read ({error}); copy the file again") from None
    if not isinstance(header, dict):
        raise ModelError(file, "the weights cannot be read (no header); copy the file again")
    return header


def check_layout(directory: Path, shapes: Shapes) -> None:
    """Raise ModelError unless every tensor is there in the shape that config.json says."""
    found = {entry.name: entry for entry in entries(directory)}
    if not found:
        raise ModelError(directory, "no weights of a Qwen2.5-Omni thinker in its safetensors files")
    for name, shape in expected(shapes):
        entry = found.get(name)
        if entry is None:
            raise ModelError(directory, f"the weights lack {name!r}; the checkpoint is incomplete")
        if entry.shape != shape:
            is_not = f"is {list(entry.shape)} where config.json makes it {list(shape)}"
            raise ModelError(directory, f"{name!r} {is_not}; config and weights belong to different models")
        if entry.dtype not in FLOATS:
            raise ModelError(directory, f"{name!r} is {entry.dtype}; give weights in {', '.join(FLOATS)}")


def expected(shapes: Shapes) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(name, shape) of every tensor that is used."""
    text = shapes.text
    yield "model.embed_tokens.weight", (text.vocab, text.hidden)
    yield "model.norm.weight", (text.hidden,)
    if not text.tied:
        yield "lm_head.weight", (text.vocab, text.hidden)
    for i in range(text.layers):
        yield from _text_layer(f"model.layers.{i}.", text)
    yield from _audio_ends(shapes.audio)
    for i in range(shapes.audio.layers):
        yield from _audio_layer(f"audio_tower.layers.{i}.", shapes.audio)


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
    sizes = {"conv1": (s.width, s.num_mels, 3), "conv2": (s.width, s.width, 3), "ln_post": (s.width,),
             "proj": (s.output, s.width)}  # fmt: skip
    for name, size in sizes.items():
        yield f"audio_tower.{name}.weight", size
        yield f"audio_tower.{name}.bias", size[:1]


def _audio_layer(p: str, s: AudioShape) -> Iterator[tuple[str, tuple[int, ...]]]:
    square, wide = (s.width, s.width), (s.ffn, s.width)
    sizes = {"self_attn.q_proj": square, "self_attn.v_proj": square, "self_attn.out_proj": square, "fc1": wide,
             "fc2": wide[::-1], "self_attn_layer_norm": (s.width,), "final_layer_norm": (s.width,)}  # fmt: skip
    for name, size in sizes.items():
        yield f"{p}{name}.weight", size
        yield f"{p}{name}.bias", size[:1]
    yield f"{p}self_attn.k_proj.weight", square  # the only one without a bias
