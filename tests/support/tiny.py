"""Random Qwen2.5-Omni thinkers in the published layout: real files, small sizes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from pipelines.embedded import tokenizer as words
from pipelines.embedded.export import card
from pipelines.embedded.model import Size, config

PROMPT = {"prefix": words.PREFIX, "suffix": words.SUFFIXES["zh"]}
CARD = {"version": 1, "name": "tiny", "prompt": PROMPT, "max_turn_s": 60}


def save_tiny(directory, seed, seed_size=1, vocab=None, card=CARD):
    """A thinker alone, one shard, with its tokenizer and card.

    seed_size scales the widths, vocab pads the vocabulary. Weights are wide enough that logits
    differ clearly: no near ties.
    """
    from transformers import Qwen2_5OmniThinkerForConditionalGeneration as Stock

    directory.mkdir(parents=True, exist_ok=True)
    sizes = config(Size(32, 2, 2, 32 * seed_size, 2, 2 * seed_size, 48, (2, 3, 3)))
    sizes.text_config.vocab_size = vocab or sizes.text_config.vocab_size
    torch.manual_seed(seed)
    model = Stock(sizes).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                is_table = "embed_tokens" in name
                weight.normal_(0.0, 0.3 if is_table else 1.0 / weight[0].numel() ** 0.5)
            elif name.endswith("bias"):
                weight.normal_(0.0, 0.1)
    model.save_pretrained(directory)
    words.save(directory)
    (directory / "streamer.json").write_text(json.dumps(card, ensure_ascii=False), encoding="utf-8")
    return directory


def save_bilingual(home: Path) -> tuple[str, str]:
    """(edge, cloud) that speak Chinese and English, by the phrases of the training."""
    words = card("tiny")
    edge = save_tiny(home / "edge", 1, card=words)
    return str(edge), str(save_tiny(home / "cloud", 3, seed_size=2, card=words))


def full_model(source, target, shards=2, **config):
    """The same as the full model is published: `thinker.` prefixes, shards, an index."""
    shutil.copytree(source, target)
    thinker = json.loads((target / "config.json").read_text())
    whole = {"model_type": "qwen2_5_omni", "enable_audio_output": True}
    whole["thinker_config"] = thinker | config
    (target / "config.json").write_text(json.dumps(whole))
    weights = load_file(target / "model.safetensors")
    (target / "model.safetensors").unlink()
    names, index = sorted(weights), {}
    for i in range(shards):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        part = {"thinker." + name: weights[name] for name in names[i::shards]}
        part[f"talker.noise.{i}"] = torch.zeros(2)
        save_file(part, target / file, {"format": "pt", "of": file})
        index |= dict.fromkeys(part, file)
    table = json.dumps({"metadata": {}, "weight_map": index})
    (target / "model.safetensors.index.json").write_text(table)
    return target
