"""A tokenizer of the release's size and special ids, made here. Out: its files in a directory.

Byte-level pairs, as Qwen2's, but merged by rule and not by how often they stand together: UTF-8's
letters first, then pairs and triples of Latin letters, then pairs of Chinese characters. So a text
has somewhat more ids than under the released one. Every text goes through and comes back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from itertools import islice, product
from pathlib import Path
from string import ascii_letters, ascii_lowercase
from typing import Any

NUM_PLAIN = 151_643  # ids before the special ones
SPECIAL = [
    *(f"<|{name}|>" for name in ("endoftext", "im_start", "im_end", "AUDIO", "audio_bos")),
    *(f"<|{name}|>" for name in ("audio_eos", "box_end", "quad_start", "quad_end", "vision_bos")),
    *(f"<|{name}|>" for name in ("vision_eos", "vision_pad", "IMAGE", "VIDEO")),
]
ADDED = [
    *("<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"),
    *("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"),
]
# GPT-4's way of cutting a text before pairs are merged, with single digits, as Qwen2 has it
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT = (
    "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}<|im_start|>system\n"
    "You are a helpful assistant.<|im_end|>\n{% endif %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
    "{% if c['type'] == 'audio' %}<|audio_bos|><|AUDIO|><|audio_eos|>"
    "{% elif c['type'] == 'text' %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HAN = (0x4E00, 0x9FA6)


def write_tokenizer(out: Path) -> None:
    """tokenizer.json, its config and the chat template."""
    config = {
        "additional_special_tokens": SPECIAL[1:],
        "bos_token": None,
        "chat_template": CHAT,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 32768,
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    files = {
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": config,
        "chat_template.json": {"chat_template": CHAT},
    }
    for name, content in files.items():
        (out / name).write_text(json.dumps(content, ensure_ascii=False) + "\n", "utf-8")


def _tokenizer() -> dict[str, Any]:
    merges = list(islice(_merges(), NUM_PLAIN - 256))
    vocab = {character: i for i, character in enumerate(sorted(_stand_ins().values()))}
    for first, second in merges:
        vocab[first + second] = len(vocab)
    tokens = [*SPECIAL, *ADDED]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    split = {"type": "Split", "pattern": {"Regex": PIECES}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": len(vocab) + i, "content": token, **plain, "special": token in SPECIAL}
            for i, token in enumerate(tokens)
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [split, {**level, "use_regex": False}],
        },
        "post_processor": {**level, "use_regex": False},
        "decoder": {**level, "use_regex": False},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [f"{first} {second}" for first, second in merges],
        },
    }


def _merges() -> Iterator[tuple[str, str]]:
    """Pairs in the order in which they are merged; each makes a token that was not there."""
    made = set()
    for pair in _pairs():
        if "".join(pair) not in made:
            made.add("".join(pair))
            yield pair


def _pairs() -> Iterator[tuple[str, str]]:
    letters = [chr(c) for c in (*range(0xC0, 0x250), *range(0x391, 0x460))]
    marks = [chr(c) for c in (*range(0x3001, 0x3018), *range(0xFF01, 0xFF5F))]
    han = [chr(c) for c in range(*HAN)]
    for character in [*letters, *marks, *han]:
        spelled = _spelled(character)
        for i in range(1, len(spelled)):
            yield spelled[:i], spelled[i]
    for first, second in product(["\u0120", *ascii_letters], ascii_lowercase):
        yield first, second
    for first, second, third in product(["\u0120", *ascii_lowercase], *[ascii_lowercase] * 2):
        yield first + second, third
    for first, second in product(han[:: len(han) // 400], repeat=2):
        yield _spelled(first), _spelled(second)


def _spelled(text: str) -> str:
    table = _stand_ins()
    return "".join(table[byte] for byte in text.encode())


@cache
def _stand_ins() -> dict[int, str]:
    """Byte -> the character that stands for it (`bytes_to_unicode` of GPT-2)."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(others)}}
