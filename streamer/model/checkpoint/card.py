"""The card of a model directory, `streamer.json`.

Prompt, turn length, calibrated gate thresholds per preset, and the attribute phrases to read a
sentence back. The first language stands at the top, further ones under `languages`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
from msgspec import Meta, Struct, field

from streamer.core.attributes import Profile, parse
from streamer.core.decoding.plan import PRESETS, Gate, Preset
from streamer.model.checkpoint.layout import TextShape
from streamer.model.checkpoint.weights import ModelError, check_files

FILE = "streamer.json"
# (hidden, layers) of Qwen2.5-Omni 3B and 7B, which come without a card
PUBLISHED = {(2048, 36), (3584, 28)}
# For checkpoints without a card. The instruction stands BEFORE the audio, so that only the few ids
# of the suffix are left to prefill after the last sample: 26 ms against 190 after 29 s (2026-11).
PREFIX = (
    "<|im_start|>system\n你是一位语音分析员。<|im_end|>\n<|im_start|>user\n"
    "请听录音，用一句完整的中文描述说话人说话的方式：语速、音调、起伏、音量、停顿、音色和情绪，不要复述内容。<|audio_bos|>"
)
SUFFIX = "<|audio_eos|><|im_end|>\n<|im_start|>assistant\n"


Text = Annotated[str, Meta(min_length=1)]
Phrase = Annotated[str, Meta(min_length=1, max_length=100)]
# For a terminal: no control characters, and none that hide or turn the text around them.
_UNSEEN = r"\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
Line = Annotated[str, Meta(pattern=rf"^[^{_UNSEEN}]+\Z")]
LineOrNone = Annotated[str, Meta(pattern=rf"^[^{_UNSEEN}]*\Z")]
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=1, le=10**9)]


@dataclass(frozen=True)
class Promise:
    """The certificate of a preset's threshold (core/calibration.py): expected loss of a clip
    <= risk.

    confidence: 0, or that with which the mean loss is <= risk. cloud: the name of the model that
    judged; fingerprint: what fingerprint_of makes of it, "" where the card does not say. profiles,
    languages: whose sentences it holds for.
    """

    risk: Share
    confidence: Share
    num_clips: Count
    date: Line
    cloud: Line
    fingerprint: LineOrNone = ""
    profiles: Annotated[tuple[Profile, ...], Meta(min_length=1)] = ("full",)
    languages: tuple[Line, ...] = ()


class _Preset(Struct, forbid_unknown_fields=True):
    """A misspelt threshold is refused, not off."""

    entropy: Annotated[float, Meta(ge=0, le=100)]
    k: Annotated[int, Meta(ge=1, le=64)] | None = None
    promise: Promise | None = None


class _Prompt(Struct):
    prefix: Text | None = None
    suffix: Text | None = None


class _Level(TypedDict):
    name: Line
    phrases: Annotated[list[Phrase], Meta(min_length=1)]


Gates = dict[Literal["fluent", "quality"], _Preset]
Levels = Annotated[list[_Level], Meta(min_length=1)]


class _Language(Struct, forbid_unknown_fields=True):
    """The fields that a language may have of its own."""

    language: Line | None = None
    prompt: _Prompt = field(default_factory=_Prompt)
    attributes: dict[str, Levels] = field(default_factory=dict)
    no_speech: Text | None = None
    openings: tuple[Phrase, ...] = ()
    gate: Gates = field(default_factory=dict)


class _Card(_Language, forbid_unknown_fields=False):
    name: Line | None = None
    max_turn_s: Annotated[float, Meta(ge=2, le=300)] = 60.0  # a window; the stock extractor's cut
    languages: dict[Line, _Language] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelCard:
    """prefix, suffix: the prompt's text around the audio, special ids spelled. openings: a sentence
    begins with one of these (core/rules/form.py). languages: further ones, each as a card."""

    name: str
    language: str = "zh"
    max_turn_s: float = 60.0
    prefix: str = PREFIX
    suffix: str = SUFFIX
    presets: Mapping[str, Preset] = dataclasses.field(default_factory=lambda: dict(PRESETS))
    # of the presets that have one
    promises: Mapping[str, Promise] = dataclasses.field(default_factory=dict)
    calibrated: bool = False  # whether the thresholds are this checkpoint's own
    attributes: Mapping[str, Sequence[Mapping[str, Any]]] = dataclasses.field(default_factory=dict)
    no_speech: str = ""  # the sentence for a clip without speech
    openings: tuple[str, ...] = ()
    languages: Mapping[str, ModelCard] = dataclasses.field(default_factory=dict)

    @property
    def spoken(self) -> tuple[str, ...]:
        """The languages of its sentences, the first one first."""
        return self.language, *self.languages

    def speaking(self, language: str = "") -> ModelCard:
        """The card for sentences in `language`, "" for the first one. Raises ValueError."""
        if language in ("", self.language):
            return self
        if language not in self.languages:
            told = f"language is {language!r}, but this model speaks {' and '.join(self.spoken)}"
            raise ValueError(f"{told}; leave it out, or take a model that speaks it")
        return self.languages[language]

    @cached_property
    def phrases(self) -> str:
        """A digest of all that a sentence is made of (core/rules/form.py), "" without phrases."""
        if not self.attributes:
            return ""
        told = {
            name: [level["phrases"] for level in levels] for name, levels in self.attributes.items()
        }
        begin = [list(self.openings)] if self.openings else []
        content = json.dumps([told, self.no_speech, *begin], sort_keys=True).encode()
        return hashlib.blake2b(content, digest_size=8).hexdigest()


def read_card(directory: Path) -> ModelCard:
    """A model directory's card, or defaults. Raises ModelError for one that cannot be used."""
    check_files(directory)
    file = directory / FILE
    # a link to nowhere is a card lost, not a model without one
    if not file.exists() and not file.is_symlink():
        return ModelCard(name=directory.name)
    try:
        return card_of(json.loads(file.read_text("utf-8")), directory.name)
    except (ValueError, OSError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        way = "mend it, or copy it again from where the model came from"
        raise ModelError(file, f"is not a model card ({reason}); {way}") from None


class ModelWarning(UserWarning):
    """A model can be used, but maybe not as was meant: one line that says why and what to do."""


def warn_of_defaults(directory: Path, shape: TextShape) -> None:
    """Warn (ModelWarning) of defaults in place of a card, for a model they were not made for."""
    if (directory / FILE).exists() or (shape.hidden, shape.layers) in PUBLISHED:
        return
    why = f"has no {FILE} and is no published Qwen2.5-Omni"
    taken = (
        "the default prompt, language zh, turns of 60 s, an uncalibrated gate and no attribute "
        "levels are taken"
    )
    warnings.warn(
        f"{directory}: {why}: {taken}; copy its own {FILE} beside its weights",
        ModelWarning,
        stacklevel=2,
    )


def card_of(raw: Any, name: str) -> ModelCard:
    """The card that parsed JSON gives; `name` where it has none. Raises ValueError."""
    json.dumps(raw, ensure_ascii=False).encode()  # JSON can spell half a character
    try:
        card = msgspec.convert(raw, _Card)
    except msgspec.ValidationError as error:
        if "unknown field" not in str(error):
            raise
        why = (
            "a misspelt threshold would be off, and `margin` and `log_prob` have no effect any more"
        )
        raise ValueError(f"{error}: {why}; delete the field") from None
    base = ModelCard(card.name or name, max_turn_s=card.max_turn_s)
    first = _spoken(card, base, card.language or "zh")
    languages = {key: _further(first, own, key) for key, own in card.languages.items()}
    return replace(first, languages=languages)


def _further(first: ModelCard, own: _Language, language: str) -> ModelCard:
    """The card of a further language, with the first one's values where it has none."""
    at = f"language {language}"
    if language == first.language or own.language not in (None, language):
        raise ValueError(f"{at} stands there twice, or under another name")
    found = _spoken(own, first, language)
    if found.prefix != first.prefix:
        why = "audio is prefilled before the language is known"
        raise ValueError(f"{at} has another prompt before the audio; {why}")
    levels, others = (
        {n: len(levels) for n, levels in c.attributes.items()} for c in (found, first)
    )
    if levels != others:
        raise ValueError(f"{at} has other attributes or levels than {first.language}")
    return found


def _spoken(own: _Language, base: ModelCard, language: str) -> ModelCard:
    """`base` with a language's own values; its own thresholds replace those of the default presets.
    A promise that names no languages was made for sentences in `language`."""
    parse("", own.attributes)  # ValueError for an unknown attribute
    if own.gate:
        presets = {
            name: Preset(Gate(g.entropy), g.k or PRESETS[name].k) for name, g in own.gate.items()
        }
        promises: dict[str, Promise] = {
            name: replace(g.promise, languages=g.promise.languages or (language,))
            for name, g in own.gate.items()
            if g.promise is not None
        }
        base = replace(base, presets=PRESETS | presets, promises=promises, calibrated=True)
    return replace(
        base,
        language=language,
        prefix=own.prompt.prefix or base.prefix,
        suffix=own.prompt.suffix or base.suffix,
        attributes=own.attributes,
        no_speech=own.no_speech or "",
        openings=own.openings,
    )


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
        raise ModelError(
            out, f"cannot be written ({error.strerror}); choose another place with --out"
        ) from None


def replace_text(file: Path, text: str) -> None:
    """Atomically, with the mode that an ordinary new file has. Raises OSError."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    try:
        with open(handle, "w", encoding="utf-8") as half:
            half.write(text)
        Path(name).chmod(0o644)
        os.replace(name, file)
    except BaseException:
        Path(name).unlink()
        raise
