"""A byte-level BPE tokenizer in Qwen2's format for the words of all sentences, the same for edge
and cloud, and the prompt of each language."""

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel
from transformers.convert_slow_tokenizer import bytes_to_unicode

from pipelines.embedded.sentences import LANGUAGES, all_words
from pipelines.embedded.speak import ZH

SPECIALS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>"),
    *("<|IMAGE|>", "<|VIDEO|>", "<|vision_bos|>", "<|vision_eos|>", "<|zh|>", "<|en|>"),
)
PREFIX = "<|im_start|>描述说话方式。<|audio_bos|>"
# The language comes after the audio: whatever it is, the audio is prefilled the same.
SUFFIXES = {language: f"<|audio_eos|><|im_start|><|{language}|>" for language in LANGUAGES}
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WORDS = ("描述", "说话方式", "描述说话方式")


def merges() -> list[tuple[str, str]]:
    """Characters first, then words left to right: learnt merges would join halves of
    neighbouring characters."""
    words = [*all_words(), *WORDS]
    characters = sorted(set("".join(words)) | set("".join(ZH)) | set("，。、；：？！“”"))
    pairs: dict[tuple[str, str], None] = {}
    alphabet = bytes_to_unicode()  # of GPT-2: the vocabulary spells bytes in it
    spelled = ["".join(alphabet[byte] for byte in character.encode()) for character in characters]
    of = dict(zip(characters, spelled, strict=True))
    for parts in (*spelled, *([of[c] for c in word] for word in sorted(words, key=len))):
        for end in range(1, len(parts)):
            pairs["".join(parts[:end]), parts[end]] = None
    return list(pairs)


def build() -> Tokenizer:
    pairs = merges()
    vocabulary = {piece: i for i, piece in enumerate(sorted(ByteLevel.alphabet()))}
    for left, right in pairs:
        vocabulary.setdefault(left + right, len(vocabulary))
    tokenizer = Tokenizer(models.BPE(vocabulary, pairs, fuse_unk=False, byte_fallback=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(name, normalized=False, special=True) for name in SPECIALS]
    )
    return tokenizer


def save(folder: Path) -> None:
    build().save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "model_max_length": 32768,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "bos_token": None,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "audio_token": "<|AUDIO|>",
        "audio_bos_token": "<|audio_bos|>",
        "audio_eos_token": "<|audio_eos|>",
    }
    (folder / "tokenizer_config.json").write_text(
        json.dumps(config, ensure_ascii=False, indent=2) + "\n"
    )
