"""The card of a model directory, `streamer.json`.

Prompt, turn length, calibrated gate thresholds per preset, and the attribute phrases to read a
sentence back. The first language stands at the top, further ones under `languages`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from streamer.core.attributes import Profile, parse
from streamer.core.decoding.plan import PRESETS, Preset
from streamer.model.checkpoint.weights import ModelError

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
    """The certificate of a preset's threshold (core/calibration.py): expected loss of a clip
    <= risk.

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

    openings: a sentence begins with one of these (core/rules/form.py). languages: further ones;
    each card there is complete.
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
            told = f"language is {language!r}, but this model speaks {' and '.join(self.spoken)}"
            raise ValueError(f"{told}; leave it out, or take a model that speaks it")
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


def write_gate(directory: Path, out: Path, gate: Mapping[str, Any], language: str = "") -> None:
    """Write the directory's card to the file `out` with `gate` (preset -> thresholds) for its own;
    the rest stays. language: that the thresholds are for; "" is the card's first.

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
        replace_text(out, json.dumps(raw, ensure_ascii=False, indent=1) + "\n")
    except ValueError as error:
        raise ModelError(file, f"is not a model card ({error}); mend it first") from None
    except OSError as error:
        told = f"cannot be written ({error.strerror}); choose another place with --out"
        raise ModelError(out, told) from None


def replace_text(file: Path, text: str) -> None:
    """Atomically. Raises OSError."""
    half = file.with_name(f".{file.name}.half")
    try:
        half.write_text(text, "utf-8")
        half.replace(file)
    finally:
        half.unlink(missing_ok=True)
