"""The sizes of a model, from the config.json of its checkpoint.

Reads a thinker's own config and the full model's (`thinker_config`), as transformers 4.x and 5.x
write them (transformers/models/qwen2_5_omni/configuration_qwen2_5_omni.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct


@dataclass(frozen=True, slots=True)
class TextShape:
    """The language model: Qwen2; of audio alone its mrope is plain rope, all rows equal."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    rope_theta: float
    eps: float
    max_positions: int
    tied: bool


@dataclass(frozen=True, slots=True)
class AudioShape:
    """The audio tower: windows of 2 * n_window mel frames, independent of each other."""

    width: int
    layers: int
    heads: int
    ffn: int
    num_mels: int
    n_window: int
    output: int


@dataclass(frozen=True, slots=True)
class Shapes:
    text: TextShape
    audio: AudioShape
    audio_id: int  # the placeholder id that stands at audio positions


Size = Annotated[int, Meta(ge=1, le=10**9)]  # 0 is none, and never stands for a default
Theta = Annotated[float, Meta(ge=1, le=1e12)]
Id = Annotated[int, Meta(ge=0, le=10**9)]
RopeKind = Literal["default", "mrope"]


class _Rope(Struct):
    rope_theta: Theta | None = None
    rope_type: RopeKind | None = None
    type: RopeKind | None = None


class _Text(Struct):
    """null stands for a default: published files hold it."""

    hidden_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    intermediate_size: Size
    vocab_size: Size
    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    max_position_embeddings: Size | None = None
    rms_norm_eps: Annotated[float, Meta(ge=1e-30, le=1)] = 1e-6
    rope_theta: Theta = 1_000_000.0  # in 4.x; in `rope_parameters` in 5.x
    rope_parameters: _Rope | None = None
    rope_scaling: _Rope | None = None
    tie_word_embeddings: bool = False
    hidden_act: Literal["silu"] = "silu"
    use_sliding_window: Literal[False] | None = None

    def shape(self, tied: bool | None) -> TextShape:
        rope = self.rope_parameters or self.rope_scaling or _Rope()
        return TextShape(
            hidden=self.hidden_size,
            layers=self.num_hidden_layers,
            heads=self.num_attention_heads,
            kv_heads=self.num_key_value_heads or self.num_attention_heads,
            head_dim=self.head_dim or self.hidden_size // self.num_attention_heads,
            ffn=self.intermediate_size,
            vocab=self.vocab_size,
            rope_theta=rope.rope_theta or self.rope_theta,
            eps=self.rms_norm_eps,
            max_positions=self.max_position_embeddings or 32_768,
            tied=self.tie_word_embeddings if tied is None else tied,
        )


class _Audio(Struct):
    d_model: Size
    encoder_attention_heads: Size
    output_dim: Size
    encoder_layers: Size | None = None
    num_hidden_layers: Size | None = None
    encoder_ffn_dim: Size | None = None
    num_mel_bins: Size = 128
    n_window: Size = 100
    activation_function: Literal["gelu"] = "gelu"

    def __post_init__(self) -> None:
        if self.encoder_layers is None and self.num_hidden_layers is None:
            raise ValueError("no `encoder_layers`")

    def shape(self) -> AudioShape:
        return AudioShape(
            width=self.d_model,
            layers=self.encoder_layers or self.num_hidden_layers or 0,
            heads=self.encoder_attention_heads,
            ffn=self.encoder_ffn_dim or 4 * self.d_model,
            num_mels=self.num_mel_bins,
            n_window=self.n_window,
            output=self.output_dim,
        )


class _Thinker(Struct):
    text_config: _Text
    audio_config: _Audio
    audio_token_index: Id | None = None  # in 4.x
    audio_token_id: Id | None = None
    tie_word_embeddings: bool | None = None


class _Release(Struct):
    """The full model's config, or a thinker's own."""

    model_type: Literal["qwen2_5_omni", "qwen2_5_omni_thinker"]
    thinker_config: dict[str, Any] | None = None


def read_shapes(config: Any) -> Shapes:
    """Raise ValueError with one clear line when this is not a Qwen2.5-Omni thinker."""
    release = msgspec.convert(config, _Release)
    found = msgspec.convert(release.thinker_config or config, _Thinker)
    ids = (found.audio_token_index, found.audio_token_id, 151_646)
    audio_id = next(each for each in ids if each is not None)
    text, audio = found.text_config, found.audio_config
    shapes = Shapes(text.shape(found.tie_word_embeddings), audio.shape(), audio_id)
    _check(shapes)
    return shapes


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
