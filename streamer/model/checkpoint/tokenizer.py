"""A model's tokenizer: text to ids, ids to bytes and a `Vocabulary`, read from tokenizer.json.

Byte-level BPE as in Qwen2: each id is a string of stand-in characters, one per byte
(`transformers/convert_slow_tokenizer.py`, `bytes_to_unicode`). Only prompts are encoded, so plain
Python is fast enough. Method: https://github.com/openai/gpt-2 (encoder.py); tests compare it with
the library tokenizers.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec

from streamer.core.text.vocabulary import Vocabulary
from streamer.extras import missing
from streamer.model.checkpoint.layout import Id

EOS = ("<|im_end|>", "<|endoftext|>")
# A text is split by a pattern of Unicode's classes, which `re` lacks. So the pattern sees one
# stand-in for each character outside ASCII: a letter, a digit, a blank or a mark.
_STAND_INS = {"L": "x", "N": "0", "Z": " "}
# Other patterns than the published one are refused: one might keep `re` busy for ever.
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_IN_ASCII = re.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\na-zA-Z0-9]?[a-zA-Z]+|[0-9]| ?[^\sa-zA-Z0-9]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2_IN_ASCII = re.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[a-zA-Z]+| ?[0-9]+| ?[^\sa-zA-Z0-9]+|\s+(?!\S)|\s+"
)


class TokenizerError(Exception):
    """A directory without a tokenizer we can read; the message is one line for the user."""


@dataclass(frozen=True)
class Tokenizer:
    """Text to ids and ids to bytes. Special tokens are spelled in the text: "<|im_start|>user".

    vocabulary: spelling -> id; merges: the earlier, the sooner; added: text -> id; pattern: what
    one merge never crosses, None for the whole text; is_composed: text becomes NFC first.
    """

    vocabulary: Mapping[str, int]
    merges: Mapping[tuple[str, str], int]
    added: Mapping[str, int]
    pattern: re.Pattern[str] | None
    is_composed: bool

    @classmethod
    def load(cls, directory: Path) -> Tokenizer:
        """Read the tokenizer of a model directory. Raises TokenizerError."""
        try:
            return _read(json_of(Path(directory)))
        except TokenizerError:
            raise
        except Exception as error:  # a damaged file raises anything
            reason = str(error).strip().split("\n")[0]
            raise TokenizerError(f"{directory}: cannot read its tokenizer: {reason}") from error

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, nothing added. Raises TokenizerError where there is none."""
        text = unicodedata.normalize("NFC", text) if self.is_composed else text
        ids: list[int] = []
        for i, part in enumerate(self._special.split(text)):
            if i % 2:
                ids.append(self.added[part])
            else:
                ids += [token for word in self._words(part) for token in self._merged(word)]
        return ids

    def token_bytes(self, size: int) -> tuple[list[bytes], set[int]]:
        """(bytes of each id, b"" for none; the added ids, special or not). Raises TokenizerError,
        also for an id that is not below `size`."""
        added = {i: text for text, i in self.added.items()}
        spelled = {**self.vocabulary, **self.added}
        num_ids = max(spelled.values(), default=-1) + 1
        if num_ids > size:
            raise TokenizerError(f"{num_ids} ids in the tokenizer, {size} in the model")
        found = [b""] * num_ids
        table = {ord(c): byte for byte, c in enumerate(spelling_of_bytes())}
        for token, i in spelled.items():
            try:
                found[i] = (
                    added[i].encode() if i in added else token.translate(table).encode("latin-1")
                )
            except UnicodeEncodeError:
                raise TokenizerError(f"not a byte-level tokenizer: id {i} is {token!r}") from None
        return found, set(added)

    @cached_property
    def _special(self) -> re.Pattern[str]:
        """The added texts, as a group: `split` keeps them."""
        longest_first = sorted(self.added, key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")

    def _words(self, text: str) -> list[str]:
        if self.pattern is None:
            return [text]
        spans = (found.span() for found in self.pattern.finditer("".join(map(_stand_in, text))))
        return [text[begin:end] for begin, end in spans]

    def _merged(self, word: str) -> Iterator[int]:
        """The ids of one word, by the merges that come first in their list."""
        pieces = [spelling_of_bytes()[byte] for byte in word.encode()]
        while len(pieces) > 1:
            ranks = [self.merges.get(pair, len(self.merges)) for pair in pairwise(pieces)]
            best = min(range(len(ranks)), key=ranks.__getitem__)
            if ranks[best] == len(self.merges):
                break
            pieces[best : best + 2] = [pieces[best] + pieces[best + 1]]
        for piece in pieces:
            if piece not in self.vocabulary:
                raise TokenizerError(f"no id for {piece!r}")
            yield self.vocabulary[piece]


def vocabulary_of(directory: Path, size: int) -> Vocabulary:
    """The vocabulary of a model directory for `size` logits columns; models of one tokenizer share
    it.

    Raises TokenizerError when there is no byte-level tokenizer, none of EOS, or more ids than
    `size`.
    """
    found, special = Tokenizer.load(directory).token_bytes(size)
    eos = [i for i, data in enumerate(found) if i in special and data.decode() in EOS]
    if not eos:
        raise TokenizerError(f"{directory}: its tokenizer has neither {' nor '.join(EOS)}")
    return _built(tuple(found), frozenset(special), tuple(eos), size)


@lru_cache(maxsize=2)
def _built(
    found: tuple[bytes, ...], special: frozenset[int], eos: tuple[int, ...], size: int
) -> Vocabulary:
    """The latest two are kept for the process's life: an edge and its cloud have one tokenizer, and
    to take it apart is half of what loading the embedded pair costs (0.05 of 0.1 s each, 2026-11).
    So what is cached in one is no single model's."""
    return Vocabulary.build(found, special, eos, size)


def json_of(directory: Path) -> Any:
    """The content of a directory's tokenizer.json, or of one made of its older files."""
    file = directory / "tokenizer.json"
    if file.is_file():
        return msgspec.json.decode(file.read_bytes())
    if (directory / "vocab.json").is_file() and (directory / "merges.txt").is_file():
        if (why := missing("a tokenizer without tokenizer.json", "transformers")) is not None:
            raise TokenizerError(why)
        from transformers import AutoTokenizer

        found = AutoTokenizer.from_pretrained(
            str(directory), local_files_only=True, trust_remote_code=False
        )
        return json.loads(found.backend_tokenizer.to_str())
    raise TokenizerError(f"{directory}: no tokenizer.json, nor vocab.json with merges.txt")


class _Added(msgspec.Struct):
    content: Annotated[str, msgspec.Meta(min_length=1)]
    id: Id


def _read(held: Any) -> Tokenizer:
    """Read a parsed tokenizer.json. Raises TokenizerError for another kind, and anything for a
    broken one."""
    model = held["model"]
    vocabulary = model["vocab"]
    if model.get("type", "BPE") != "BPE" or not isinstance(vocabulary, dict):
        raise TokenizerError("not a byte-level tokenizer: its model is not BPE")
    normalizer = (held.get("normalizer") or {}).get("type")
    if normalizer not in (None, "NFC"):
        raise TokenizerError(f"not a tokenizer as Qwen's: its normalizer is {normalizer}")
    pairs = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
    added = msgspec.convert(held.get("added_tokens") or [], list[_Added])
    merges = {pair: rank for rank, pair in reversed([*enumerate(pairs)])}
    return Tokenizer(
        msgspec.convert(vocabulary, dict[str, Id]),
        merges,
        {token.content: token.id for token in added},
        _pattern(held["pre_tokenizer"]),
        is_composed=normalizer == "NFC",
    )


def _pattern(pre_tokenizer: Any) -> re.Pattern[str] | None:
    """That of `Split` before `ByteLevel`, or of `ByteLevel` alone."""
    steps = pre_tokenizer.get("pretokenizers", [pre_tokenizer])
    split = [step["pattern"]["Regex"] for step in steps if step["type"] == "Split"]
    levels = [step for step in steps if step["type"] == "ByteLevel"]
    if len(levels) != 1 or len(split) + 1 != len(steps) or levels[0].get("add_prefix_space"):
        raise TokenizerError("not a byte-level tokenizer as Qwen's")
    if levels[0].get("use_regex", True):
        return _GPT2_IN_ASCII
    if split and split[0] != _QWEN2:
        raise TokenizerError(f"not a tokenizer as Qwen's: its pattern is {split[0]!r:.80}")
    return _QWEN2_IN_ASCII if split else None


def _stand_in(character: str) -> str:
    if character < "\x80":
        return character
    if character == "\x85":
        return " "
    return _STAND_INS.get(unicodedata.category(character)[0], "!")


@cache
def spelling_of_bytes() -> tuple[str, ...]:
    """Byte -> its stand-in character: printable ones as they are, the others from 256 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    table = {byte: chr(byte) for byte in plain}
    table |= {byte: chr(256 + i) for i, byte in enumerate(others)}
    return tuple(table[byte] for byte in range(256))
