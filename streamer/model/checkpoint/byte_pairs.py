"""Byte-level BPE as in Qwen2: the spelling of a tokenizer.json, and text to ids.

Only prompts and the sentences of `streamer tune` are encoded, so plain Python is fast enough.
Method: https://github.com/openai/gpt-2 (encoder.py); the tests hold it to the library tokenizers.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

# A text is split by a pattern of Unicode's classes, which `re` lacks. So the pattern sees one
# stand-in for each character outside ASCII: a letter, a digit, a blank or a mark.
_STAND_INS = {"L": "x", "N": "0", "Z": " "}
_CLASSES = {"L": "a-zA-Z", "N": "0-9"}
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


class Unknown(ValueError):
    """A tokenizer of another kind; the message is the reason."""


@dataclass(frozen=True)
class BytePairs:
    """vocabulary: spelling -> id; merges: the earlier, the sooner; added: text -> id; pattern: what
    one merge never crosses, None for the whole text; is_composed: text becomes NFC first."""

    vocabulary: Mapping[str, int]
    merges: Mapping[tuple[str, str], int]
    added: Mapping[str, int]
    pattern: str | None
    is_composed: bool

    def encode(self, text: str) -> list[tuple[int, int, int]]:
        """(id, where its characters begin, where they end) of each id. An id that is a part of a
        character has the whole character's place."""
        text = unicodedata.normalize("NFC", text) if self.is_composed else text
        found = []
        for begin, end in self._parts(text):
            if (part := text[begin:end]) in self.added:
                found.append((self.added[part], begin, end))
            else:
                found += self._merged(part, begin)
        return found

    def _parts(self, text: str) -> Iterator[tuple[int, int]]:
        """Added texts, and between them what the pattern finds."""
        at = 0
        for found in [*self._special.finditer(text)] if self.added else []:
            yield from self._words(text, at, found.start())
            yield found.span()
            at = found.end()
        yield from self._words(text, at, len(text))

    def _words(self, text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
        if self.pattern is None:
            yield from [(begin, end)] if end > begin else []
            return
        at = begin
        for found in self._splitter.finditer("".join(map(_stand_in, text[begin:end]))):
            if begin + found.start() > at:
                yield at, begin + found.start()
            at = begin + found.end()
            yield begin + found.start(), at
        yield from [(at, end)] if end > at else []

    @cached_property
    def _special(self) -> re.Pattern[str]:
        longest_first = sorted(self.added, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)))

    @cached_property
    def _splitter(self) -> re.Pattern[str]:
        assert self.pattern is not None
        return re.compile(_in_ascii(self.pattern))

    def _merged(self, word: str, begin: int) -> Iterator[tuple[int, int, int]]:
        """The ids of one word, by the merges that come first in their list."""
        owners = [begin + i for i, c in enumerate(word) for _ in c.encode()]
        pieces = [spelling_of_bytes()[byte] for byte in word.encode()]
        while len(pieces) > 1:
            ranks = [self.merges.get(pair, len(self.merges)) for pair in pairwise(pieces)]
            best = min(range(len(ranks)), key=ranks.__getitem__)
            if ranks[best] == len(self.merges):
                break
            pieces[best : best + 2] = [pieces[best] + pieces[best + 1]]
        at = 0
        for piece in pieces:
            if piece not in self.vocabulary:
                raise Unknown(f"no id for {piece!r}")
            last = at + len(piece) - 1
            yield self.vocabulary[piece], owners[at], owners[last] + 1
            at += len(piece)


def read(held: Any) -> BytePairs:
    """A parsed tokenizer.json. Raises Unknown for another kind, and what a broken one raises."""
    model = held["model"]
    vocabulary = model["vocab"]
    if model.get("type", "BPE") != "BPE" or not isinstance(vocabulary, dict):
        raise Unknown("not a byte-level tokenizer: its model is not BPE")
    normalizer = (held.get("normalizer") or {}).get("type")
    if normalizer not in (None, "NFC"):
        raise Unknown(f"not a tokenizer as Qwen's: its normalizer is {normalizer}")
    pairs = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
    added = {token["content"]: token["id"] for token in held.get("added_tokens") or ()}
    merges = {pair: rank for rank, pair in reversed([*enumerate(pairs)])}
    pattern = _pattern(held["pre_tokenizer"])
    return BytePairs(vocabulary, merges, added, pattern, is_composed=normalizer == "NFC")


def _pattern(pre_tokenizer: Any) -> str | None:
    """That of `Split` before `ByteLevel`, or of `ByteLevel` alone."""
    steps = pre_tokenizer.get("pretokenizers", [pre_tokenizer])
    split = [step["pattern"]["Regex"] for step in steps if step["type"] == "Split"]
    levels = [step for step in steps if step["type"] == "ByteLevel"]
    if len(levels) != 1 or len(split) + 1 != len(steps) or levels[0].get("add_prefix_space"):
        raise Unknown("not a byte-level tokenizer as Qwen's")
    if levels[0].get("use_regex", True):
        return _GPT2
    return split[0] if split else None


def _stand_in(character: str) -> str:
    if character < "\x80":
        return character
    if character == "\x85":
        return " "
    return _STAND_INS.get(unicodedata.category(character)[0], "!")


def _in_ascii(pattern: str) -> str:
    r"""The pattern with \p{L} and \p{N} for stand-ins."""
    found, is_inside = "", False
    for piece in re.split(r"(\\p\{.\}|\\.|[\[\]])", pattern):
        if piece[:2] == r"\p":
            if piece[3] not in _CLASSES:
                raise Unknown(f"not a tokenizer as Qwen's: its pattern has {piece}")
            each = _CLASSES[piece[3]]
            piece = each if is_inside else f"[{each}]"
        is_inside = piece == "[" or (is_inside and piece != "]")
        found += piece
    return found


@cache
def spelling_of_bytes() -> tuple[str, ...]:
    """Byte -> its stand-in character: printable ones as they are, the others from 256 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    table = {byte: chr(byte) for byte in plain}
    table |= {byte: chr(256 + i) for i, byte in enumerate(others)}
    return tuple(table[byte] for byte in range(256))
