"""A model's tokenizer. In: tokenizer.json (or vocab.json, merges.txt). Out: ids, a `Vocabulary`.

Byte-level BPE as in Qwen2: each id is a string of stand-in characters, one per byte
(`transformers/convert_slow_tokenizer.py`, `bytes_to_unicode`).
"""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path

import tokenizers

from streamer.core.text.vocabulary import Vocabulary

EOS = ("<|im_end|>", "<|endoftext|>")


class TokenizerError(Exception):
    """A directory without a tokenizer we can read; the message is one line for the user."""


class Tokenizer:
    """Text to ids and ids to bytes. Special tokens are spelled in the text: "<|im_start|>user"."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend

    @classmethod
    def load(cls, directory: Path) -> Tokenizer:
        """Read the tokenizer of a model directory. Raises TokenizerError."""
        try:
            return cls(_load(Path(directory)))
        except TokenizerError:
            raise
        except Exception as error:  # the library raises bare Exception, transformers anything
            reason = str(error).strip().split("\n")[0]
            raise TokenizerError(f"{directory}: cannot read its tokenizer: {reason}") from error

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, nothing added."""
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids

    def encode_with_places(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids of `text`, and of each where its characters begin and end."""
        found = self._backend.encode(text, add_special_tokens=False)
        return found.ids, found.offsets

    def token_bytes(self, size: int) -> tuple[list[bytes], set[int]]:
        """(bytes of each id, b"" for none; the added ids, special or not). Raises TokenizerError,
        also for an id that is not below `size`."""
        added = {i: token.content for i, token in self._backend.get_added_tokens_decoder().items()}
        spelled = self._backend.get_vocab(with_added_tokens=True)
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


def _load(directory: Path) -> tokenizers.Tokenizer:
    file = directory / "tokenizer.json"
    if file.is_file():
        return tokenizers.Tokenizer.from_file(str(file))
    if (directory / "vocab.json").is_file() and (directory / "merges.txt").is_file():
        from transformers import AutoTokenizer  # slow to import, and seldom needed

        return AutoTokenizer.from_pretrained(
            str(directory), local_files_only=True, trust_remote_code=False
        ).backend_tokenizer
    raise TokenizerError(f"{directory}: no tokenizer.json, nor vocab.json with merges.txt")


@cache
def _bytes_of_characters() -> dict[int, int]:
    """Stand-in code point -> byte: printable ones as they are, the others from 256 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: byte for byte in plain} | {256 + i: byte for i, byte in enumerate(others)}
