"""The texts of a model directory: its card, `streamer.json`, and its tokenizer, tokenizer.json.

The card holds prompt, turn length, calibrated gate thresholds per preset, and the attribute phrases
to read a sentence back. The first language stands at the top, further ones under `languages`.

The tokenizer turns text into ids, and ids into bytes and a `Vocabulary`. It is byte-level BPE as in
Qwen2: each id is a string of stand-in characters, one per byte
(`transformers/convert_slow_tokenizer.py`, `bytes_to_unicode`). Only prompts are encoded, so plain
Python is fast enough. Method: https://github.com/openai/gpt-2 (encoder.py); tests compare it with
the library tokenizers.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from streamer.core.attributes import Profile, parse
from streamer.core.decoding.plan import PRESETS, Preset
from streamer.core.text.vocabulary import Vocabulary
from streamer.model.checkpoint.weights import Id, ModelError

FILE = "streamer.json"
# For checkpoints without a card. The instruction stands BEFORE the audio, so that only the few ids
# of the suffix are left to prefill after the last sample: 26 ms against 190 after 29 s (2026-11).
PREFIX = (
    "<|im_start|>system\n你是一位语音分析员。<|im_end|>\n<|im_start|>user\n"
    "请听录音，用一句完整的中文描述说话人说话的方式：语速、音调、起伏、音量、停顿、音色和情绪，不要复述内容。<|audio_bos|>"
)
SUFFIX = "<|audio_eos|><|im_end|>\n<|im_start|>assistant\n"


Phrase = Annotated[str, Meta(min_length=1, max_length=100)]
# For a terminal: no control characters, and none that hide or turn the text around them.
_UNSEEN = r"\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
Line = Annotated[str, Meta(pattern=rf"^[^{_UNSEEN}]*\Z")]
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=1, le=10**9)]


@dataclass(frozen=True)
class Promise:
    """A preset's certificate (core/calibration.py): the expected loss of a clip is <= risk.

    confidence: 0, or that with which the mean loss is <= risk. cloud: the name of the model that
    judged; fingerprint: what fingerprint_of makes of it, "" where the card does not say. profiles:
    whose sentences it holds for, in the language of its card.
    """

    risk: Share
    confidence: Share
    num_clips: Count
    date: Line
    cloud: Line
    fingerprint: Line = ""
    profiles: Annotated[tuple[Profile, ...], Meta(min_length=1)] = ("full",)


class Thresholds(Struct, frozen=True, forbid_unknown_fields=True):
    """A preset's thresholds. A misspelt one is refused, not off."""

    entropy: Annotated[float, Meta(ge=0, le=100)]
    k: Annotated[int, Meta(ge=1, le=64)] | None = None
    promise: Promise | None = None


class Prompt(Struct, frozen=True):
    """The text around the audio, special ids spelled."""

    prefix: str = PREFIX
    suffix: str = SUFFIX


class Level(TypedDict):
    name: Line
    phrases: Annotated[list[Phrase], Meta(min_length=1)]


class ModelCard(Struct, frozen=True, dict=True):
    """What `streamer.json` holds.

    openings: a sentence begins with one (core/rules/form.py). languages: further, complete cards.
    """

    name: Line = ""
    language: Line = "zh"
    max_turn_s: Annotated[float, Meta(ge=2, le=300)] = 60.0  # a window; the stock extractor's cut
    prompt: Prompt = Prompt()
    gate: dict[Literal["fluent", "quality"], Thresholds] = {}
    attributes: dict[str, Annotated[list[Level], Meta(min_length=1)]] = {}
    openings: tuple[Phrase, ...] = ()
    languages: dict[Line, ModelCard] = {}

    def __post_init__(self) -> None:
        parse("", self.attributes)  # ValueError for an unknown attribute

    @cached_property
    def presets(self) -> Mapping[str, Preset]:
        """Its own thresholds, in place of those of the default presets."""
        own = {n: Preset(of.entropy, of.k or PRESETS[n].k) for n, of in self.gate.items()}
        return PRESETS | own

    @property
    def promises(self) -> Mapping[str, Promise]:
        """Each preset's certificate, if it has one."""
        return {name: of.promise for name, of in self.gate.items() if of.promise is not None}

    @property
    def spoken(self) -> tuple[str, ...]:
        """The languages of its sentences, the first one first."""
        return self.language, *self.languages

    def speaking(self, language: str = "") -> ModelCard:
        """The card for sentences in `language`, "" for the first one. Raises ValueError."""
        found = self if language in ("", self.language) else self.languages.get(language)
        if found is None:
            why = f"language is {language!r:.80}, but this model speaks {' and '.join(self.spoken)}"
            raise ValueError(f"{why}; leave it out, or take a model that speaks it")
        return found

    @cached_property
    def phrases(self) -> str:
        """A digest of all that a sentence is made of (core/rules/form.py), "" without phrases."""
        if not self.attributes:
            return ""
        told = {name: [level["phrases"] for level in of] for name, of in self.attributes.items()}
        content = json.dumps([told, self.openings], sort_keys=True).encode()
        return hashlib.blake2b(content, digest_size=8).hexdigest()


def read_card(directory: Path) -> ModelCard:
    """A model directory's card, or defaults. Raises ModelError for one that cannot be used."""
    file = directory / FILE
    try:
        raw = msgspec.json.decode(file.read_bytes()) if file.exists() else {}
        return card_of(raw, directory.name)
    except (ValueError, OSError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        way = "mend it, or copy it again from where the model came from"
        raise ModelError(file, f"is not a model card ({reason}); {way}") from None


def card_of(raw: Any, name: str) -> ModelCard:
    """The card that parsed JSON gives; `name` where it has none. Raises ValueError."""
    first = msgspec.convert(raw, ModelCard)
    first = replace(first, name=first.name or name)
    further = {language: _further(first, raw, language) for language in first.languages}
    return replace(first, languages=further)


def _further(first: ModelCard, raw: Any, language: str) -> ModelCard:
    """The card of a further language, with the first one's values where it has none."""
    own = raw["languages"][language]
    shared = {name: raw[name] for name in ("max_turn_s", "gate") if name in raw}
    prompt = {"prompt": raw.get("prompt", {}) | own.get("prompt", {})}
    named = {"name": first.name, "language": language}
    card = msgspec.convert(shared | own | prompt | named, ModelCard)
    if card.prompt.prefix != first.prompt.prefix:
        why = "audio is prefilled before the language is known"
        raise ValueError(f"language {language} has another prompt before the audio; {why}")
    levels, others = ({n: len(of) for n, of in c.attributes.items()} for c in (card, first))
    if levels != others:
        told = f"has other attributes or levels than {first.language}"
        raise ValueError(f"language {language} {told}")
    return card


def write_gate(directory: Path, gate: Mapping[str, Any], language: str = "") -> None:
    """Write `gate` (preset -> thresholds) into the directory's card; the rest stays. language: that
    the thresholds are for; "" is the card's first.

    A reader sees the old file or the new one, never half of one. Raises ModelError, also for a gate
    that `read_card` would refuse.
    """
    file = directory / FILE
    try:
        raw = json.loads(file.read_text("utf-8")) if file.exists() else {}
        card_of(raw, directory.name)
        own = raw.get("languages", {}).get(language, raw)
        own["gate"] = {**own.get("gate", {}), **gate}
        card_of(raw, directory.name)
        replace_text(file, json.dumps(raw, ensure_ascii=False, indent=1) + "\n")
    except ValueError as error:
        raise ModelError(file, f"is not a model card ({error}); mend it first") from None
    except OSError as error:
        told = f"cannot be written ({error.strerror}); choose another place with --out"
        raise ModelError(file, told) from None


def replace_text(file: Path, text: str) -> None:
    """Atomically. Raises OSError."""
    half = file.with_name(f".{file.name}.half")
    try:
        half.write_text(text, "utf-8")
        half.replace(file)
    finally:
        half.unlink(missing_ok=True)


EOS = ("<|im_end|>", "<|endoftext|>")
# It splits a text; merges stay within its parts. Others are refused: matching might never end.
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
            patterns = [split.get("pattern") for split in file.pre_tokenizer.pretokenizers]
            if patterns != [{"Regex": _QWEN2}, None]:
                raise ValueError("another pattern than Qwen's splits a text, or none")
        except OSError as error:
            raise ModelError(directory, f"no tokenizer.json ({error.strerror})") from None
        except (ValueError, RecursionError) as error:
            raise ModelError(directory, f"cannot read its tokenizer: {error}") from None
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

        Raises ModelError for no byte-level tokenizer, none of EOS, or more than `size` ids.
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
            raise ModelError(self._directory, f"its tokenizer has neither {' nor '.join(EOS)}")
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
    So an entry of its cache belongs to both models."""
    return Vocabulary(found, special, eos, size)
