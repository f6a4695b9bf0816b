"""The sizes of a model, from the config.json of its checkpoint, and the weights that it must hold.

Config: a thinker's own or the full model's (`thinker_config`), as transformers 4.x and 5.x write
them (transformers/models/qwen2_5_omni/configuration_qwen2_5_omni.py). Weights: one safetensors file
or shards with an index, the full model's `thinker.` prefixes or a thinker alone, transformers 4.x
names (`model.layers...`) or 5.x (`model.language_model.layers...`). A config that does not fit its
weights would fail somewhere inside a product, or, worse, run: their headers are compared first.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct, field
from msgspec.structs import force_setattr
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize, safe_open

from streamer.core.description import one_line

EMBEDDING = "model.embed_tokens.weight"
Sizes = dict[str, tuple[int, ...]]  # tensor -> its shape
# An array of a layer, as engines hold it -> the tensors that it joins; in the order of use.
Layer = dict[str, Sizes]
ZEROS = ""  # in place of a tensor that no checkpoint has
Size = Annotated[int, Meta(ge=1, le=10**9)]  # 0 is refused: it does not stand for a default
Theta = Annotated[float, Meta(ge=1, le=1e12)]
Id = Annotated[int, Meta(ge=0, le=10**9)]
Told = Callable[[int, int], None]  # (parts done, parts there are)
# prefixes, in the order in which they are taken off
_RENAMED = {"thinker.": "", "model.audio_tower.": "audio_tower.", "model.language_model.": "model."}
_WANTED = re.compile(r"^(audio_tower\.|model\.(embed_tokens|layers|norm)\.|lm_head\.)")


class ModelError(ValueError):
    """A model cannot be used: `where` it is and one line that says why and what to do."""

    def __init__(self, where: str | Path, reason: str) -> None:
        # one line, since the reason may name what a broken file holds
        super().__init__(str(where), one_line(reason))

    def __str__(self) -> str:
        return "{}: {}".format(*self.args)


class ModelWarning(UserWarning):
    """A model can be used, but maybe not as was meant: one line that says why and what to do."""


def load_arrays(directory: Path) -> dict[str, NDArray[Any]]:
    """Tensors by their transformers 4.x names: float16 if all are, else float32. Raises ModelError.

    For the compiled kernels; model/engines/load.py reads a large model's weights.
    """
    weights: dict[str, NDArray[Any]] = {}
    for file in weight_files(directory):
        with reading(file):
            tensors = deserialize(file.read_bytes())
        for name, tensor in tensors:
            if known := wanted_name(name):
                data = tensor["data"]
                if tensor["dtype"] == "BF16":  # the upper half of a float32
                    array = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
                else:  # `checked` lets no other types through
                    array = np.frombuffer(data, {"F16": "<f2", "F32": "<f4"}[tensor["dtype"]])
                check_finite(bool(np.isfinite(array).all()), file, name)
                weights[known] = array.reshape(tensor["shape"])
    if len({array.dtype for array in weights.values()}) > 1:
        weights = {name: array.astype(np.float32) for name, array in weights.items()}
    return weights


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Raise ModelError where safetensors cannot read `file`."""
    try:
        yield
    except (SafetensorError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        told = f"the weights cannot be read ({reason}); copy the file again"
        raise ModelError(file, told) from None


def check_finite(is_finite: bool, file: Path, name: str) -> None:
    """Raise ModelError for NaN and infinity: NaN would silently win every comparison."""
    if not is_finite:
        told = f"{name!r} holds values that are not finite"
        raise ModelError(file, f"{told}; copy the file again, or train again")


def weight_files(directory: Path) -> list[Path]:
    """A directory's safetensors files, checked against its index, if any. Raises ModelError."""
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        try:
            found = msgspec.json.decode(index.read_bytes(), type=_Index)
        except (ValueError, OSError, RecursionError):
            raise ModelError(index, "is not a safetensors index; copy the file again") from None
        files = [directory / each for each in {Path(n).name for n in found.weight_map.values()}]
    else:
        files = [*directory.glob("*.safetensors")]
    # os.path, since pathlib raises for a name that no system takes
    if missing := sorted(file.name for file in files if not os.path.isfile(file)):
        why = f"lacks {missing[0]} ({len(missing)} of {len(files)} shards are missing)"
        raise ModelError(directory, why)
    if not files:
        why = "has no *.safetensors file; give a directory in the published layout"
        raise ModelError(directory, why)
    return sorted(files)


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def wanted_name(name: str) -> str | None:
    """A tensor's name in 4.x form; None for what is not used (vision, talker, token2wav)."""
    for old, new in _RENAMED.items():
        name = new + name.removeprefix(old) if name.startswith(old) else name
    return name if _WANTED.match(name) else None


class _Rope(Struct, frozen=True):
    rope_theta: Theta | None = None
    rope_type: Literal["default", "mrope"] = "default"
    type: Literal["default", "mrope"] = "default"


class TextShape(Struct, frozen=True, kw_only=True):
    """The language model: Qwen2; of audio alone its mrope is plain rope, all rows equal."""

    prefix: ClassVar[str] = "model."  # of its tensors

    hidden: Size = field(name="hidden_size")
    layers: Size = field(name="num_hidden_layers")
    heads: Size = field(name="num_attention_heads")
    kv_heads: Size = field(name="num_key_value_heads")
    head_dim: Size = 0  # hidden / heads
    ffn: Size = field(name="intermediate_size")
    vocab: Size = field(name="vocab_size")
    rope_theta: Theta = 1_000_000.0  # in 4.x; in `rope_parameters` in 5.x
    eps: Annotated[float, Meta(ge=1e-30, le=1)] = field(default=1e-6, name="rms_norm_eps")
    max_positions: Size = field(default=32_768, name="max_position_embeddings")
    tied: bool = field(default=False, name="tie_word_embeddings")
    rope_parameters: _Rope | None = None
    rope_scaling: _Rope | None = None
    hidden_act: Literal["silu"] = "silu"
    use_sliding_window: Literal[False] = False

    def __post_init__(self) -> None:
        rope = self.rope_parameters or self.rope_scaling or _Rope()
        force_setattr(self, "rope_theta", rope.rope_theta or self.rope_theta)
        force_setattr(self, "head_dim", self.head_dim or self.hidden // self.heads)

    def layer(self) -> Layer:
        """The arrays of each layer."""
        heads = {"q": self.heads, "k": self.kv_heads, "v": self.kv_heads}
        rows = {f"self_attn.{p}_proj": num * self.head_dim for p, num in heads.items()}
        return {
            "norm_in": {"input_layernorm.weight": (self.hidden,)},
            "qkv": {f"{name}.weight": (num, self.hidden) for name, num in rows.items()},
            "qkv_bias": {f"{name}.bias": (num,) for name, num in rows.items()},
            "out": {"self_attn.o_proj.weight": (self.hidden, self.heads * self.head_dim)},
            "norm_mlp": {"post_attention_layernorm.weight": (self.hidden,)},
            "gate_up": {f"mlp.{p}_proj.weight": (self.ffn, self.hidden) for p in ("gate", "up")},
            "down": {"mlp.down_proj.weight": (self.hidden, self.ffn)},
        }

    def ends(self) -> Sizes:
        """The tensors around the layers."""
        table = (self.vocab, self.hidden)
        head = {} if self.tied else {"lm_head.weight": table}
        return {EMBEDDING: table, f"{self.prefix}norm.weight": (self.hidden,)} | head


class AudioShape(Struct, frozen=True, kw_only=True):
    """The audio tower: windows of 2 * n_window mel frames, independent of each other."""

    prefix: ClassVar[str] = "audio_tower."

    width: Size = field(name="d_model")
    layers: Size = field(name="encoder_layers")
    heads: Size = field(name="encoder_attention_heads")
    ffn: Size = field(name="encoder_ffn_dim")
    num_mels: Size = field(default=128, name="num_mel_bins")
    n_window: Size = 100
    output: Size = field(name="output_dim")
    activation_function: Literal["gelu"] = "gelu"

    def layer(self) -> Layer:
        """The arrays of each layer."""
        one, square, wide = (self.width,), (self.width, self.width), (self.ffn, self.width)
        return {
            "norm_in": {"self_attn_layer_norm.weight": one},
            "norm_in_bias": {"self_attn_layer_norm.bias": one},
            "qkv": {f"self_attn.{p}_proj.weight": square for p in "qkv"},
            "qkv_bias": {"self_attn.q_proj.bias": one, ZEROS: one, "self_attn.v_proj.bias": one},
            "out": {"self_attn.out_proj.weight": square},
            "out_bias": {"self_attn.out_proj.bias": one},
            "norm_mlp": {"final_layer_norm.weight": one},
            "norm_mlp_bias": {"final_layer_norm.bias": one},
            "up": {"fc1.weight": wide},
            "up_bias": {"fc1.bias": wide[:1]},
            "down": {"fc2.weight": wide[::-1]},
            "down_bias": {"fc2.bias": one},
        }

    def ends(self) -> Sizes:
        """The tensors around the layers."""
        sizes = {
            "conv1": (self.width, self.num_mels, 3),
            "conv2": (self.width, self.width, 3),
            "ln_post": (self.width,),
            "proj": (self.output, self.width),
        }
        weights = {f"{self.prefix}{name}.weight": size for name, size in sizes.items()}
        return weights | {f"{self.prefix}{name}.bias": size[:1] for name, size in sizes.items()}


class Shapes(Struct, frozen=True):
    text: TextShape = field(name="text_config")
    audio: AudioShape = field(name="audio_config")
    audio_token_index: Id | None = None  # in 4.x
    audio_token_id: Id | None = None
    tie_word_embeddings: bool | None = None
    audio_id: Id = 151_646  # the placeholder that stands at audio positions

    def __post_init__(self) -> None:
        """Raises ValueError for sizes that fit no such model, or not our log-mel."""
        ids = (self.audio_token_index, self.audio_token_id, self.audio_id)
        force_setattr(self, "audio_id", next(each for each in ids if each is not None))
        if self.tie_word_embeddings is not None:
            force_setattr(self.text, "tied", self.tie_word_embeddings)
        text, audio, fault = self.text, self.audio, ""
        if text.heads % text.kv_heads or text.head_dim % 2 or text.head_dim < 2:
            fault = f"{text.heads} heads of {text.head_dim} cannot share {text.kv_heads} key heads"
        elif audio.width % (2 * audio.heads):
            fault = f"an audio tower of width {audio.width} cannot have {audio.heads} heads"
        elif audio.output != text.hidden:
            taken = f"the language model takes {text.hidden}"
            fault = f"the audio tower gives {audio.output} numbers, {taken}"
        elif (audio.num_mels, audio.n_window) != (128, 100):
            found = f"{audio.num_mels} mels and n_window {audio.n_window}"
            fault = f"{found}: only the published 128 mels and n_window 100 are supported"
        elif self.audio_id >= text.vocab:
            fault = f"the audio placeholder {self.audio_id} is none of the {text.vocab} ids"
        if fault:
            raise ValueError(fault)


class _Release(Struct):
    """The full model's config, or a thinker's own."""

    model_type: Literal["qwen2_5_omni", "qwen2_5_omni_thinker"]
    thinker_config: dict[str, Any] | None = None


def shapes_of(directory: Path) -> Shapes:
    """The sizes that a model directory's config.json states. Raises ModelError."""
    file = directory / "config.json"
    if not file.is_file():
        why = "has no config.json; give a directory in the published Qwen2.5-Omni layout"
        raise ModelError(directory, why)

    def without_null(pairs: list[tuple[str, Any]]) -> dict[str, Any]:  # null: the default
        return {name: value for name, value in pairs if value is not None}

    try:
        config = json.loads(file.read_text("utf-8"), object_pairs_hook=without_null)
        release = msgspec.convert(config, _Release)
        return msgspec.convert(release.thinker_config or config, Shapes)
    except (ValueError, RecursionError, OSError) as error:
        raise ModelError(file, getattr(error, "strerror", None) or str(error)) from None


MIXED = "config and weights belong to different models"
FLOATS = {"F32": 4, "F16": 2, "BF16": 2}  # the types that weights may have, and their bytes


def entries(directory: Path) -> Iterator[tuple[str, tuple[int, ...], str, tuple[Path, str]]]:
    """(name in transformers 4.x, shape, type, its file and name there) of every wanted tensor, by
    its file's header. Raises ModelError."""
    for file in weight_files(directory):
        with reading(file), safe_open(file, framework="np") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                if known := wanted_name(name):
                    found = tensors.get_slice(name)
                    yield known, tuple(found.get_shape()), found.get_dtype(), (file, name)


def checked(directory: Path) -> tuple[Shapes, int, int]:
    """The sizes that config.json states, the number of parameters, and bytes of the weights.
    ModelError unless each tensor is there, once, in its shape."""
    shapes = shapes_of(directory)
    listed = list(entries(directory))
    found = {name: (shape, dtype) for name, shape, dtype, _ in listed}
    if len(found) < len(listed):
        raise ModelError(directory, "its files hold some tensor twice; keep those of one save only")
    wanted = dict(expected(shapes.text, shapes.audio))
    for name, size in wanted.items():
        shape, dtype = found.get(name, (None, ""))
        if shape is None:
            why = f"the weights lack {name!r}; the checkpoint is incomplete"
        elif shape != size:
            why = f"{name!r} is {list(shape)} where config.json makes it {list(size)}; {MIXED}"
        elif dtype not in FLOATS:
            why = f"{name!r} is {dtype}; give weights in {', '.join(FLOATS)}"
        else:
            continue
        raise ModelError(directory, why)
    # a model cut off after some of its layers would fit tensor by tensor, and talk nonsense
    for name in found:
        if ".layers." in name and name not in wanted:
            raise ModelError(directory, f"{name!r} is none of config.json's; {MIXED}")
    sizes = [(math.prod(shape), FLOATS.get(dtype, 0)) for shape, dtype in found.values()]
    return shapes, sum(num for num, _ in sizes), sum(num * width for num, width in sizes)


def expected(*parts: TextShape | AudioShape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(name, shape) of every tensor that these use."""
    for part in parts:
        yield from part.ends().items()
        for i in range(part.layers):
            for tensors in part.layer().values():
                for name, size in tensors.items():
                    if name != ZEROS:
                        yield f"{part.prefix}layers.{i}.{name}", size


SAMPLED_BYTES = 1 << 16
NUM_SAMPLES = 64


def fingerprint_of(directory: Path) -> str:
    """A digest of config, card and weights.

    A large file counts by its size and 4 MB spread over it: enough to tell checkpoints apart
    without reading 15 GB. The card counts without `gate`, which changes nothing that is said.
    """
    digest = hashlib.blake2b(digest_size=8)
    kinds = ("*.safetensors", "config.json", "streamer.json")
    for file in sorted(file for kind in kinds for file in directory.glob(kind)):
        if file.name == "streamer.json":
            digest.update(b"streamer.json\n" + _uncalibrated(file.read_bytes()))
            continue
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as data:
            if size <= NUM_SAMPLES * SAMPLED_BYTES:
                digest.update(data.read())
                continue
            for i in range(NUM_SAMPLES):
                data.seek(i * (size - SAMPLED_BYTES) // (NUM_SAMPLES - 1))
                digest.update(data.read(SAMPLED_BYTES))
    return digest.hexdigest()


def _uncalibrated(content: bytes) -> bytes:
    """A card without its thresholds; as it stands where it is no card."""

    def bare(card: dict[str, Any]) -> dict[str, Any]:
        return {name: card[name] for name in sorted(card) if name != "gate"}

    try:
        card = bare(json.loads(content))
        if "languages" in card:
            card["languages"] = {name: bare(own) for name, own in card["languages"].items()}
        return json.dumps(card).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return content
