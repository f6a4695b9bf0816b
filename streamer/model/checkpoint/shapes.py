"""The sizes of a model, from the config.json of its checkpoint.

Reads a thinker's own config and the full model's (`thinker_config`), as transformers 4.x and 5.x
write them (transformers/models/qwen2_5_omni/configuration_qwen2_5_omni.py).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import force_setattr

Size = Annotated[int, Meta(ge=1, le=10**9)]  # 0 is none, and never stands for a default
Theta = Annotated[float, Meta(ge=1, le=1e12)]
Id = Annotated[int, Meta(ge=0, le=10**9)]


class _Rope(Struct, frozen=True):
    rope_theta: Theta | None = None
    rope_type: Literal["default", "mrope"] = "default"
    type: Literal["default", "mrope"] = "default"


class TextShape(Struct, frozen=True, kw_only=True):
    """The language model: Qwen2; of audio alone its mrope is plain rope, all rows equal."""

    hidden: Size = field(name="hidden_size")
    layers: Size = field(name="num_hidden_layers")
    heads: Size = field(name="num_attention_heads")
    kv_heads: Size = field(default=0, name="num_key_value_heads")  # as `heads`
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
        force_setattr(self, "kv_heads", self.kv_heads or self.heads)
        force_setattr(self, "head_dim", self.head_dim or self.hidden // self.heads)


class AudioShape(Struct, frozen=True, kw_only=True):
    """The audio tower: windows of 2 * n_window mel frames, independent of each other."""

    width: Size = field(name="d_model")
    layers: Size = field(default=0, name="encoder_layers")
    heads: Size = field(name="encoder_attention_heads")
    ffn: Size = field(default=0, name="encoder_ffn_dim")  # 4 * width
    num_mels: Size = field(default=128, name="num_mel_bins")
    n_window: Size = 100
    output: Size = field(name="output_dim")
    num_hidden_layers: Size = 0  # `encoder_layers` in some files
    activation_function: Literal["gelu"] = "gelu"

    def __post_init__(self) -> None:
        layers = self.layers or self.num_hidden_layers
        if not layers:
            raise ValueError("no `encoder_layers`")
        force_setattr(self, "layers", layers)
        force_setattr(self, "ffn", self.ffn or 4 * self.width)


class Shapes(Struct, frozen=True):
    text: TextShape = field(name="text_config")
    audio: AudioShape = field(name="audio_config")
    audio_token_index: Id | None = None  # in 4.x
    audio_token_id: Id | None = None
    tie_word_embeddings: bool | None = None
    audio_id: Id = 151_646  # the placeholder that stands at audio positions

    def __post_init__(self) -> None:
        ids = (self.audio_token_index, self.audio_token_id, self.audio_id)
        force_setattr(self, "audio_id", next(each for each in ids if each is not None))
        if self.tie_word_embeddings is not None:
            force_setattr(self.text, "tied", self.tie_word_embeddings)


class _Release(Struct):
    """The full model's config, or a thinker's own."""

    model_type: Literal["qwen2_5_omni", "qwen2_5_omni_thinker"]
    thinker_config: dict[str, Any] | None = None


def read_shapes(config: Any) -> Shapes:
    """Raise ValueError with one clear line when this is not a Qwen2.5-Omni thinker."""
    release = msgspec.convert(config, _Release)
    shapes = msgspec.convert(_without_null(release.thinker_config or config), Shapes)
    _check(shapes)
    return shapes


def _without_null(raw: Any) -> Any:
    """null stands for a default: published files hold it."""
    if not isinstance(raw, dict):
        return raw
    return {name: _without_null(value) for name, value in raw.items() if value is not None}


def _check(shapes: Shapes) -> None:
    """ValueError for sizes that fit no such model, or not what our log-mel gives."""
    text = shapes.text
    audio = shapes.audio
    if text.heads % text.kv_heads or text.head_dim % 2 or text.head_dim < 2:
        raise ValueError(
            f"{text.heads} heads of {text.head_dim} cannot share {text.kv_heads} key heads"
        )
    if audio.width % audio.heads or audio.width % 2 or audio.width < 4:
        raise ValueError(f"an audio tower of width {audio.width} cannot have {audio.heads} heads")
    if audio.output != text.hidden:
        raise ValueError(
            f"the audio tower gives {audio.output} numbers, the language model takes {text.hidden}"
        )
    if (audio.num_mels, audio.n_window) != (128, 100):
        found = f"{audio.num_mels} mels and n_window {audio.n_window}"
        raise ValueError(f"{found}: only the published 128 mels and n_window 100 are supported")
    if not 0 <= shapes.audio_id < text.vocab:
        raise ValueError(f"the audio placeholder {shapes.audio_id} is none of the {text.vocab} ids")
