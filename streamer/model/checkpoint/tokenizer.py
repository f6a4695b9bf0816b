"""A model's tokenizer: text to ids, ids to bytes and a `Vocabulary`, read from tokenizer.json.

Byte-level BPE as in Qwen2: each id is a string of stand-in characters, one per byte
(`transformers/convert_slow_tokenizer.py`, `bytes_to_unicode`). Only prompts are encoded, so plain
Python is fast enough. Method: https://github.com/openai/gpt-2 (encoder.py); tests compare it with
the library tokenizers.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from streamer.core.text.vocabulary import Vocabulary
from streamer.model.checkpoint.weights import Id, ModelError

EOS = ("<|im_end|>", "<|endoftext|>")
# The pattern that splits a text; merges stay within its parts. Other patterns are refused, since
# matching one might never end.
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# `re` lacks Unicode's classes, so its pattern sees one stand-in for each character outside ASCII: a
# letter, a digit, a blank or a mark.
_QWEN2_IN_ASCII = re.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\na-zA-Z0-9]?[a-zA-Z]+|[0-9]| ?[^\sa-zA-Z0-9]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PLAIN = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PLAIN]
# Byte -> the character that spells it: printable ones as they are, the others from 256 on.
_SPELLED = {byte: chr(byte) for byte in _PLAIN} | {b: chr(256 + i) for i, b in enumerate(_OTHERS)}
_BYTES = {ord(character): byte for byte, character in _SPELLED.items()}


class _Bpe(Struct, tag_field="type", tag="BPE"):
    vocab: dict[str, Id]
    merges: list[str | tuple[str, str]]


class _Splits(Struct):
    pretokenizers: list[dict[str, Any]] = []


class _Added(Struct):
    content: Annotated[str, Meta(min_length=1)]
    id: Id


class _File(Struct):
    model: _Bpe
    pre_tokenizer: _Splits
    added_tokens: list[_Added] = []


class Tokenizer:
    """Text to ids and ids to bytes. Special tokens are spelled in the text: "<|im_start|>user"."""

    def __init__(self, directory: Path) -> None:
        """Read the tokenizer of a model directory. Raises ModelError."""
        self._directory = directory
        try:
            file = msgspec.json.decode((directory / "tokenizer.json").read_bytes(), type=_File)
        except OSError as error:
            raise ModelError(directory, f"no tokenizer.json ({error.strerror})") from None
        except (ValueError, RecursionError) as error:
            raise ModelError(directory, f"cannot read its tokenizer: {error}") from None
        patterns = [split.get("pattern") for split in file.pre_tokenizer.pretokenizers]
        if patterns != [{"Regex": _QWEN2}, None]:
            told = "another pattern than Qwen's splits a text, or none"
            raise ModelError(directory, f"cannot read its tokenizer: {told}")
        self._ids = file.model.vocab
        pairs = [tuple(m.split(" ")) if isinstance(m, str) else m for m in file.model.merges]
        self._ranks = {pair: rank for rank, pair in reversed([*enumerate(pairs)])}
        self._added = {token.content: token.id for token in file.added_tokens}
        longest_first = sorted(self._added, key=len, reverse=True)
        # as a group: `split` keeps them
        self._special = re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, nothing added. Raises ModelError where there is none."""
        ids: list[int] = []
        for part in self._special.split(unicodedata.normalize("NFC", text)):
            if part in self._added:
                ids.append(self._added[part])
                continue
            for word in _QWEN2_IN_ASCII.finditer("".join(map(_stand_in, part))):
                ids += self._merged(part[word.start() : word.end()])
        return ids

    def vocabulary(self, size: int) -> Vocabulary:
        """The vocabulary for `size` columns of logits; models of one tokenizer share it.

        Raises ModelError if this is no byte-level tokenizer, has none of EOS or more than `size`
        ids.
        """
        num_ids = max([*self._ids.values(), *self._added.values()], default=-1) + 1
        if num_ids > size:
            why = f"{num_ids} ids in the tokenizer, {size} in the model"
            raise ModelError(self._directory, why)
        found = [b""] * num_ids
        for token, i in self._ids.items():
            try:
                found[i] = token.translate(_BYTES).encode("latin-1")
            except UnicodeEncodeError:
                why = f"not a byte-level tokenizer: id {i} is {token!r}"
                raise ModelError(self._directory, why) from None
        for text, i in self._added.items():
            found[i] = text.encode()
        if not (eos := sorted(self._added[text] for text in EOS if text in self._added)):
            why = f"its tokenizer has neither {' nor '.join(EOS)}"
            raise ModelError(self._directory, why)
        return _built(tuple(found), frozenset(self._added.values()), tuple(eos), size)

    def _merged(self, word: str) -> Iterator[int]:
        """The ids of one word, by the merges that come first in their list."""
        pieces = [_SPELLED[byte] for byte in word.encode()]
        while len(pieces) > 1:
            ranks = [self._ranks.get(pair, len(self._ranks)) for pair in pairwise(pieces)]
            best = min(range(len(ranks)), key=ranks.__getitem__)
            if ranks[best] == len(self._ranks):
                break
            pieces[best : best + 2] = [pieces[best] + pieces[best + 1]]
        for piece in pieces:
            if piece not in self._ids:
                raise ModelError(self._directory, f"its tokenizer has no id for {piece!r}")
            yield self._ids[piece]


def _stand_in(character: str) -> str:
    if character < "\x80":
        return character
    if character == "\x85":
        return " "
    return {"L": "x", "N": "0", "Z": " "}.get(unicodedata.category(character)[0], "!")


@lru_cache(maxsize=2)
def _built(
    found: tuple[bytes, ...], special: frozenset[int], eos: tuple[int, ...], size: int
) -> Vocabulary:
    """The latest two are kept for the process's life: an edge and its cloud have one tokenizer, and
    to take it apart is half of what loading the embedded pair costs (0.05 of 0.1 s each, 2026-11).
    So what is cached in one is no single model's."""
    return Vocabulary(found, special, eos, size)
