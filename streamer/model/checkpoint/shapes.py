"""The sizes of a model, from the config.json of its checkpoint.

First come typed reads out of parsed JSON, which the card and the index use as well: a file of a
model comes from anywhere, and JSON has Infinity, half surrogate pairs and true where a size should
stand. Each read gives the value as its type, or a ValueError that names the field and the value.

Reads a thinker's own config and the full model's (`thinker_config`), as transformers 4.x and 5.x
write them (transformers/models/qwen2_5_omni/configuration_qwen2_5_omni.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from reprlib import repr as shown  # a value in an error stays one readable line
from typing import Any

KNOWN_TYPES = ("qwen2_5_omni", "qwen2_5_omni_thinker")
MAX_SIZE = 10**9


def an_object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {shown(value)}, not an object")
    return value


def number(value: Any, name: str, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"{name} is {shown(value)}, not a number from {least:g} to {most:g}")
    return float(value)


def whole(value: Any, name: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} is {shown(value)}, not a whole number from {least} to {most}")
    return value


def text(value: Any, name: str) -> str:
    """A text that is not empty and has an UTF-8 form, which half a surrogate pair has not."""
    if not isinstance(value, str) or not value or any("\ud800" <= c <= "\udfff" for c in value):
        raise ValueError(f"{name} is {shown(value)}, not a text")
    return value


def line(value: Any, name: str) -> str:
    """A text for one line of a terminal."""
    if not text(value, name).isprintable():
        raise ValueError(f"{name} is {shown(value)}, not one printable line")
    return str(value)


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


def read_shapes(config: Any) -> Shapes:
    """Raise ValueError with one clear line when this is not a Qwen2.5-Omni thinker."""
    kind = an_object(config, "config").get("model_type")
    if kind not in KNOWN_TYPES:
        raise ValueError(
            f"model_type is {shown(kind)}, not a Qwen2.5-Omni thinker ({' or '.join(KNOWN_TYPES)})"
        )
    thinker = an_object(config.get("thinker_config", config), "thinker_config")
    try:
        text, audio = (an_object(thinker[name], name) for name in ("text_config", "audio_config"))
        audio_id = thinker.get("audio_token_index", thinker.get("audio_token_id", 151646))
        audio_id = whole(audio_id, "audio_token_index", 0, MAX_SIZE)
        shapes = Shapes(_text(text, _tied(thinker, text)), _audio(audio), audio_id)
    except KeyError as missing:
        raise ValueError(
            f"lacks {missing.args[0]!r}; take the whole config.json of the release"
        ) from None
    _check(shapes)
    return shapes


def _size(c: dict[str, Any], name: str, default: int | None = None) -> int:
    """A count: 0 is none, and never stands for the default. null does: published files hold it."""
    return whole(
        default if default is not None and c.get(name) is None else c[name], name, 1, MAX_SIZE
    )


def _tied(thinker: dict[str, Any], text: dict[str, Any]) -> bool:
    tied = thinker.get("tie_word_embeddings", text.get("tie_word_embeddings", False))
    if not isinstance(tied, bool):
        raise ValueError(f"tie_word_embeddings is {shown(tied)}, not true or false")
    return tied


def _text(c: dict[str, Any], tied: bool) -> TextShape:
    if c.get("use_sliding_window"):
        raise ValueError("sliding-window attention is not supported (use_sliding_window is true)")
    if c.get("hidden_act", "silu") != "silu":
        raise ValueError(f"activation {shown(c['hidden_act'])} is not supported, only silu")
    hidden = _size(c, "hidden_size")
    heads = _size(c, "num_attention_heads")
    return TextShape(
        hidden=hidden,
        layers=_size(c, "num_hidden_layers"),
        heads=heads,
        kv_heads=_size(c, "num_key_value_heads", heads),
        head_dim=_size(c, "head_dim", hidden // heads),
        ffn=_size(c, "intermediate_size"),
        vocab=_size(c, "vocab_size"),
        rope_theta=_rope_theta(c),
        eps=number(c.get("rms_norm_eps", 1e-6), "rms_norm_eps", 1e-30, 1.0),
        max_positions=_size(c, "max_position_embeddings", 32_768),
        tied=tied,
    )


def _rope_theta(c: dict[str, Any]) -> float:
    """Beside the sizes in 4.x, in `rope_parameters` in 5.x. Other kinds of rope are refused."""
    name = "rope_parameters" if c.get("rope_parameters") is not None else "rope_scaling"
    rope = {} if c.get(name) is None else an_object(c[name], name)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "mrope"):
        raise ValueError(f"rope type {shown(kind)} is not supported, only default and mrope")
    return number(rope.get("rope_theta", c.get("rope_theta", 1_000_000.0)), "rope_theta", 1.0, 1e12)


def _audio(c: dict[str, Any]) -> AudioShape:
    width = _size(c, "d_model")
    if c.get("activation_function", "gelu") != "gelu":
        raise ValueError(
            f"audio activation {shown(c['activation_function'])} is not supported, only gelu"
        )
    return AudioShape(
        width=width,
        layers=_size(
            c, "encoder_layers" if c.get("encoder_layers") is not None else "num_hidden_layers"
        ),
        heads=_size(c, "encoder_attention_heads"),
        ffn=_size(c, "encoder_ffn_dim", 4 * width),
        num_mels=_size(c, "num_mel_bins", 128),
        n_window=_size(c, "n_window", 100),
        output=_size(c, "output_dim"),
    )


def _check(shapes: Shapes) -> None:
    """ValueError for sizes that fit no such model, or not what our log-mel gives."""
    text = shapes.text
    audio = shapes.audio
    if text.heads % text.kv_heads or text.head_dim % 2:
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
