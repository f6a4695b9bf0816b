"""What a checkpoint's config.json says, as numbers. In: the parsed JSON. Out: TextShape, AudioShape.

Reads a thinker's own config and the full model's (`thinker_config`), as transformers 4.x and 5.x write them
(transformers/models/qwen2_5_omni/configuration_qwen2_5_omni.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

KNOWN_TYPES = ("qwen2_5_omni", "qwen2_5_omni_thinker")


@dataclass(frozen=True, slots=True)
class TextShape:
    """The language model: Qwen2 with rotary positions (audio-only mrope is plain rope, all rows equal)."""

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


def read_shapes(config: dict[str, Any]) -> Shapes:
    """Raise ValueError with one clear line when this is not a Qwen2.5-Omni thinker."""
    kind = config.get("model_type")
    if kind not in KNOWN_TYPES:
        raise ValueError(f"model_type is {kind!r}, not a Qwen2.5-Omni thinker ({' or '.join(KNOWN_TYPES)})")
    thinker = config.get("thinker_config", config)
    try:
        text, audio = thinker["text_config"], thinker["audio_config"]
        tied = bool(thinker.get("tie_word_embeddings", text.get("tie_word_embeddings", False)))
        audio_id = thinker.get("audio_token_index", thinker.get("audio_token_id", 151646))
        shapes = Shapes(_text(text, tied), _audio(audio), int(audio_id))
    except KeyError as missing:
        raise ValueError(f"config.json lacks {missing.args[0]!r}") from None
    except ZeroDivisionError:
        raise ValueError("num_attention_heads is 0 in config.json") from None
    _check(shapes)
    return shapes


def _text(c: dict[str, Any], tied: bool) -> TextShape:
    if c.get("use_sliding_window"):
        raise ValueError("sliding-window attention is not supported (use_sliding_window is true)")
    rope = c.get("rope_parameters") or c.get("rope_scaling") or {}
    heads = int(c["num_attention_heads"])
    return TextShape(
        hidden=int(c["hidden_size"]),
        layers=int(c["num_hidden_layers"]),
        heads=heads,
        kv_heads=int(c.get("num_key_value_heads") or heads),
        head_dim=int(c.get("head_dim") or c["hidden_size"] // heads),
        ffn=int(c["intermediate_size"]),
        vocab=int(c["vocab_size"]),
        rope_theta=float(rope.get("rope_theta") or c.get("rope_theta") or 1_000_000.0),
        eps=float(c.get("rms_norm_eps", 1e-6)),
        max_positions=int(c.get("max_position_embeddings", 32_768)),
        tied=tied,
    )


def _audio(c: dict[str, Any]) -> AudioShape:
    width = int(c["d_model"])
    if c.get("activation_function", "gelu") != "gelu":
        raise ValueError(f"audio activation {c['activation_function']!r} is not supported, only gelu")
    return AudioShape(
        width=width,
        layers=int(c.get("encoder_layers") or c["num_hidden_layers"]),
        heads=int(c["encoder_attention_heads"]),
        ffn=int(c.get("encoder_ffn_dim", 4 * width)),
        num_mels=int(c.get("num_mel_bins", 128)),
        n_window=int(c.get("n_window", 100)),
        output=int(c["output_dim"]),
    )


def _check(shapes: Shapes) -> None:
    """Raise ValueError for sizes that fit no model of this architecture, or not what our log-mel gives."""
    text, audio = shapes.text, shapes.audio
    for part in (text, audio):
        for name in part.__dataclass_fields__:
            if isinstance(value := getattr(part, name), int | float) and name != "tied" and not 0 < value < 1e12:
                raise ValueError(f"{name} is {value} in config.json; it must be above 0")
    if text.heads % text.kv_heads or text.head_dim % 2:
        raise ValueError(f"{text.heads} heads of {text.head_dim} cannot share {text.kv_heads} key heads")
    if audio.width % audio.heads or audio.width % 2 or audio.width < 4:
        raise ValueError(f"an audio tower of width {audio.width} cannot have {audio.heads} heads")
    if audio.output != text.hidden:
        raise ValueError(f"the audio tower gives {audio.output} numbers, the language model takes {text.hidden}")
    if (audio.num_mels, audio.n_window) != (128, 100):
        found = f"{audio.num_mels} mels and n_window {audio.n_window}"
        raise ValueError(f"{found}: only the published 128 mels and n_window 100 are supported")
    if not 0 <= shapes.audio_id < text.vocab:
        raise ValueError(f"the audio placeholder {shapes.audio_id} is none of the {text.vocab} ids")
