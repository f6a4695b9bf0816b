"""Random Qwen2.5-Omni thinkers saved in the published layout. In: sizes and a seed. Out: model
directories.

The real architecture and the real file layout at a size that tests can afford; nothing is mocked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pipelines.embedded import tokenizer as words
from pipelines.embedded.export import card

CARD = {
    "version": 1,
    "name": "tiny",
    "prompt": {"prefix": words.PREFIX, "suffix": words.SUFFIXES["zh"]},
    "max_turn_s": 60,
}


def thinker_config(seed_size: int = 1, vocab: int | None = None) -> Any:
    """A small config; `seed_size` scales the widths, `vocab` pads the vocabulary."""
    from transformers import Qwen2_5OmniThinkerConfig

    tokenizer = words.build()
    ids = {name: tokenizer.token_to_id(name) for name in words.SPECIALS}
    hidden = 32 * seed_size
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 3, 3]}
    config = Qwen2_5OmniThinkerConfig(
        audio_config={
            "d_model": 32,
            "encoder_layers": 2,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "num_mel_bins": 128,
            "n_window": 100,
            "output_dim": hidden,
            "max_source_positions": 1500,
        },
        text_config={
            "hidden_size": hidden,
            "num_hidden_layers": 2,
            "num_attention_heads": 2 * seed_size,
            "num_key_value_heads": seed_size,
            "intermediate_size": 48,
            "rope_parameters": rope,
            "head_dim": 16,
            "vocab_size": vocab or tokenizer.get_vocab_size(),
            "max_position_embeddings": 4096,
            "tie_word_embeddings": True,
            "pad_token_id": ids["<|endoftext|>"],
            "eos_token_id": ids["<|im_end|>"],
        },
        vision_config={
            "depth": 1,
            "hidden_size": 16,
            "num_heads": 2,
            "intermediate_size": 16,
            "out_hidden_size": hidden,
        },
        audio_token_index=ids["<|AUDIO|>"],
        audio_start_token_id=ids["<|audio_bos|>"],
        audio_end_token_id=ids["<|audio_eos|>"],
        image_token_index=ids["<|IMAGE|>"],
        video_token_index=ids["<|VIDEO|>"],
        tie_word_embeddings=True,
        pad_token_id=ids["<|endoftext|>"],
    )
    # read by transformers, but it has no default
    config.vision_start_token_id = ids["<|vision_bos|>"]
    return config


def random_thinker(config: Any, seed: int, scale: float = 0.3) -> Any:
    """Weights wide enough that random logits differ clearly: near ties would test the rounding, not
    the rules."""
    from transformers import Qwen2_5OmniThinkerForConditionalGeneration as Stock

    torch.manual_seed(seed)
    model = Stock(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                weight.normal_(
                    0.0, scale if "embed_tokens" in name else 1.0 / weight[0].numel() ** 0.5
                )
            elif name.endswith("bias"):
                weight.normal_(0.0, 0.1)
    return model


def save_tiny(
    directory: Path,
    seed: int,
    seed_size: int = 1,
    vocab: int | None = None,
    card: Mapping[str, Any] = CARD,
) -> Path:
    """A thinker alone, one shard, with its tokenizer and card."""
    directory.mkdir(parents=True, exist_ok=True)
    random_thinker(thinker_config(seed_size, vocab), seed).save_pretrained(directory)
    words.save(directory)
    (directory / "streamer.json").write_text(json.dumps(card, ensure_ascii=False), encoding="utf-8")
    return directory


def save_bilingual(home: Path) -> tuple[str, str]:
    """(edge, cloud) that speak Chinese and English, by the phrases of the training."""
    words = card("tiny")
    edge = save_tiny(home / "edge", 1, card=words)
    return str(edge), str(save_tiny(home / "cloud", 3, seed_size=2, card=words))
