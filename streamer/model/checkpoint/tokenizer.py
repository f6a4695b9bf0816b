"""A model's tokenizer: ids, bytes and a `Vocabulary`, read from tokenizer.json.

Byte-level BPE as in Qwen2: each id is a string of stand-in characters, one per byte
(`transformers/convert_slow_tokenizer.py`, `bytes_to_unicode`).
"""

from __future__ import annotations

import json
from functools import cache, lru_cache
from pathlib import Path

from streamer.core.installed import missing
from streamer.core.text.vocabulary import Vocabulary
from streamer.model.checkpoint.byte_pairs import BytePairs, Unknown, read, spelling_of_bytes

EOS = ("<|im_end|>", "<|endoftext|>")


class TokenizerError(Exception):
    """A directory without a tokenizer we can read; the message is one line for the user."""


class Tokenizer:
    """Text to ids and ids to bytes. Special tokens are spelled in the text: "<|im_start|>user"."""

    def __init__(self, pairs: BytePairs) -> None:
        self._pairs = pairs

    @classmethod
    def load(cls, directory: Path) -> Tokenizer:
        """Read the tokenizer of a model directory. Raises TokenizerError."""
        try:
            return cls(_load(Path(directory)))
        except TokenizerError:
            raise
        except Unknown as error:
            raise TokenizerError(str(error)) from None
        except Exception as error:  # a damaged file raises anything
            reason = str(error).strip().split("\n")[0]
            raise TokenizerError(f"{directory}: cannot read its tokenizer: {reason}") from error

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, nothing added."""
        return [i for i, _, _ in self._pairs.encode(text)]

    def encode_with_places(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids of `text`, and of each where its characters begin and end."""
        found = self._pairs.encode(text)
        return [i for i, _, _ in found], [(begin, end) for _, begin, end in found]

    def token_bytes(self, size: int) -> tuple[list[bytes], set[int]]:
        """(bytes of each id, b"" for none; the added ids, special or not). Raises TokenizerError,
        also for an id that is not below `size`."""
        added = {i: text for text, i in self._pairs.added.items()}
        spelled = {**self._pairs.vocabulary, **self._pairs.added}
        num_ids = max(spelled.values(), default=-1) + 1
        if num_ids > size:
            raise TokenizerError(f"{num_ids} ids in the tokenizer, {size} in the model")
        found = [b""] * num_ids
        table = _bytes_of_characters()
        for token, i in spelled.items():
            try:
                found[i] = (
                    added[i].encode() if i in added else token.translate(table).encode("latin-1")
                )
            except UnicodeEncodeError:
                raise TokenizerError(f"not a byte-level tokenizer: id {i} is {token!r}") from None
        return found, set(added)


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


def _load(directory: Path) -> BytePairs:
    file = directory / "tokenizer.json"
    if file.is_file():
        return read(json.loads(file.read_text("utf-8")))
    if (directory / "vocab.json").is_file() and (directory / "merges.txt").is_file():
        if (why := missing("a tokenizer without tokenizer.json", "transformers")) is not None:
            raise TokenizerError(why)
        from transformers import AutoTokenizer

        found = AutoTokenizer.from_pretrained(
            str(directory), local_files_only=True, trust_remote_code=False
        )
        return read(json.loads(found.backend_tokenizer.to_str()))
    raise TokenizerError(f"{directory}: no tokenizer.json, nor vocab.json with merges.txt")


@cache
def _bytes_of_characters() -> dict[int, int]:
    """Stand-in code point -> byte."""
    return {ord(character): byte for byte, character in enumerate(spelling_of_bytes())}
