"""The small files of a release. In: Shapes. Out: config.json as the full model has it, and more."""

from __future__ import annotations

from typing import Any

from streamer.model.checkpoint.shapes import AudioShape, Shapes, TextShape

GENERATION = {
    "bos_token_id": 151643,
    "do_sample": True,
    "eos_token_id": [151645, 151643],
    "pad_token_id": 151643,
    "repetition_penalty": 1.05,
    "temperature": 0.7,
    "top_k": 20,
    "top_p": 0.8,
}
PREPROCESSOR = {
    "chunk_length": 300,
    "dither": 0.0,
    "feature_extractor_type": "WhisperFeatureExtractor",
    "feature_size": 128,
    "hop_length": 160,
    "n_fft": 400,
    "n_samples": 4800000,
    "nb_max_frames": 30000,
    "padding_side": "right",
    "padding_value": 0.0,
    "processor_class": "Qwen2_5OmniProcessor",
    "return_attention_mask": True,
    "sampling_rate": 16000,
}


def config_of(shapes: Shapes) -> dict[str, Any]:
    """config.json with the thinker nested as in the full model; talker and vocoder are left out."""
    thinker = {
        "architectures": ["Qwen2OmniNaViTThinkerForConditionalGeneration"],
        "audio_config": _audio(shapes.audio),
        "audio_end_token_id": 151648,
        "audio_start_token_id": 151647,
        "audio_token_index": shapes.audio_id,
        "bos_token_id": 151644,
        "eos_token_id": 151645,
        "image_token_index": 151655,
        "initializer_range": 0.02,
        "model_type": "qwen2_5_omni_thinker",
        "pad_token_id": 151643,
        "position_id_per_seconds": 25,
        "seconds_per_chunk": 2,
        "text_config": _text(shapes.text),
        "tie_word_embeddings": shapes.text.tied,
        "torch_dtype": "bfloat16",
        "user_token_id": 872,
        "video_token_index": 151656,
        "vision_config": {"model_type": "qwen2_5_omni_vision_encoder"},
        "vision_end_token_id": 151653,
        "vision_start_token_id": 151652,
    }
    return {
        "architectures": ["Qwen2_5OmniModel"],
        "enable_audio_output": False,
        "enable_talker": False,
        "model_type": "qwen2_5_omni",
        "thinker_config": thinker,
        "torch_dtype": "bfloat16",
    }


def _text(s: TextShape) -> dict[str, Any]:
    third = s.head_dim // 2 // 3
    return {
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "head_dim": s.head_dim,
        "hidden_size": s.hidden,
        "initializer_range": 0.02,
        "intermediate_size": s.ffn,
        "max_position_embeddings": s.max_positions,
        "model_type": "qwen2_5_omni_text",
        "num_attention_heads": s.heads,
        "num_hidden_layers": s.layers,
        "num_key_value_heads": s.kv_heads,
        "rms_norm_eps": s.eps,
        "rope_scaling": {
            "mrope_section": [s.head_dim // 2 - 2 * third, third, third],
            "rope_type": "default",
            "type": "default",
        },
        "rope_theta": s.rope_theta,
        "sliding_window": 32768,
        "tie_word_embeddings": s.tied,
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": s.vocab,
    }


def _audio(s: AudioShape) -> dict[str, Any]:
    return {
        "activation_function": "gelu",
        "d_model": s.width,
        "encoder_attention_heads": s.heads,
        "encoder_ffn_dim": s.ffn,
        "encoder_layers": s.layers,
        "max_source_positions": 1500,
        "model_type": "qwen2_5_omni_audio_encoder",
        "n_window": s.n_window,
        "num_mel_bins": s.num_mels,
        "output_dim": s.output,
        "scale_embedding": False,
    }
