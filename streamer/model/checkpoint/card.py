"""The card of a model directory, `streamer.json`.

Prompt, turn length, calibrated gate thresholds per preset, and the attribute phrases to read a
sentence back. The first language stands at the top, further ones under `languages`.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from streamer.core.attributes import PROFILES, Profile, parse
from streamer.core.decoding.plan import PRESETS, Gate, Plan, Preset
from streamer.model.checkpoint.shapes import TextShape, an_object, line, number, shown, text, whole
from streamer.model.checkpoint.weights import ModelError, check_files

FILE = "streamer.json"
MOST_CHARACTERS = 100  # of a phrase or an opening
TURN_S = (2.0, 300.0)  # one window; where the stock extractor cuts
RANGES = {
    "entropy": (0.0, 100.0),
    "margin": (0.0, 1.0),
    "log_prob": (-1000.0, 0.0),
    "surprise": (0.0, 1e5),
}
# what a preset of the gate may say
THRESHOLDS = ("entropy", "k", "margin", "log_prob", "surprise", "promise")
# (hidden, layers) of Qwen2.5-Omni 3B and 7B, which come without a card
PUBLISHED = {(2048, 36), (3584, 28)}
# of a further language: its words, and what it may have in place of the first language's
WORDS = ("attributes", "no_speech", "openings")
OF_A_LANGUAGE = ("language", "prompt", *WORDS, "gate")
# For checkpoints without a card. The instruction stands BEFORE the audio, so that only the few ids
# of the suffix are left to prefill after the last sample: 26 ms against 190 after 29 s (2026-11).
PREFIX = (
    "<|im_start|>system\n你是一位语音分析员。<|im_end|>\n<|im_start|>user\n"
    "请听录音，用一句完整的中文描述说话人说话的方式：语速、音调、起伏、音量、停顿、音色和情绪，不要复述内容。<|audio_bos|>"
)
SUFFIX = "<|audio_eos|><|im_end|>\n<|im_start|>assistant\n"


@dataclass(frozen=True)
class Promise:
    """The certificate of a preset's threshold (core/calibration.py): expected loss of a clip
    <= risk.

    confidence: 0, or that with which the mean loss is <= risk. num_groups: of clips, each of which
    keeps the risk in expectation. cloud: the name of the model that judged; fingerprint: what
    fingerprint_of makes of it, "" where the card does not say. profiles, languages: whose
    sentences it holds for.
    """

    risk: float
    confidence: float
    signal: str
    num_clips: int
    num_groups: int
    date: str
    cloud: str
    fingerprint: str = ""
    profiles: tuple[Profile, ...] = ("full",)
    languages: tuple[str, ...] = ("zh",)


@dataclass(frozen=True)
class ModelCard:
    """prefix, suffix: the prompt's text around the audio, special ids spelled. openings: a sentence
    begins with one of these (core/rules/form.py). languages: further ones, each as a card."""

    name: str
    language: str = "zh"
    max_turn_s: float = 60.0
    prefix: str = PREFIX
    suffix: str = SUFFIX
    presets: Mapping[str, Preset] = field(default_factory=lambda: dict(PRESETS))
    # of the presets that have one
    promises: Mapping[str, Promise] = field(default_factory=dict)
    calibrated: bool = False  # whether the thresholds are this checkpoint's own
    attributes: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    no_speech: str = ""  # the sentence for a clip without speech
    openings: tuple[str, ...] = ()
    languages: Mapping[str, ModelCard] = field(default_factory=dict)

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
        return card_of(an_object(json.loads(file.read_text("utf-8")), "the card"), directory.name)
    except (ValueError, KeyError, OSError, RecursionError) as error:
        reason = (
            f"lacks {error}"
            if isinstance(error, KeyError)
            else getattr(error, "strerror", None) or str(error)
        )
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


def card_of(raw: Mapping[str, Any], name: str) -> ModelCard:
    """The card that parsed JSON gives; `name` where it has none. Raises ValueError, KeyError."""
    first = _spoken(raw, name, raw.get("language", "zh"))
    further = an_object(raw.get("languages", {}), "languages")
    languages = {key: _further(first, raw, key, own) for key, own in further.items()}
    return replace(first, languages=languages)


def _further(first: ModelCard, raw: Mapping[str, Any], language: str, own: Any) -> ModelCard:
    """The card of a further language, with the first one's values where it has none."""
    at = f"language {language}"
    own = an_object(own, at)
    if unknown := set(own) - set(OF_A_LANGUAGE):
        raise ValueError(f"{at} has no {sorted(unknown)[0]!r}; it takes {', '.join(OF_A_LANGUAGE)}")
    if language == first.language or own.get("language", language) != language:
        raise ValueError(f"{at} stands there twice, or under another name")
    prompt = {**raw.get("prompt", {}), **an_object(own.get("prompt", {}), f"prompt of {at}")}
    shared = {key: value for key, value in raw.items() if key not in WORDS}
    of_gate = language if "gate" in own else first.language
    merged = {**shared, **own, "prompt": prompt, "language": language}
    found = _spoken(merged, first.name, of_gate)
    if found.prefix != first.prefix:
        why = "audio is prefilled before the language is known"
        raise ValueError(f"{at} has another prompt before the audio; {why}")
    if _num_levels(found) != _num_levels(first):
        raise ValueError(f"{at} has other attributes or levels than {first.language}")
    return found


def _num_levels(card: ModelCard) -> dict[str, int]:
    return {name: len(levels) for name, levels in card.attributes.items()}


def _spoken(raw: Mapping[str, Any], name: str, of_gate: str) -> ModelCard:
    """The card of the language at the top of `raw`. of_gate: the language whose sentences a promise
    was made for that names none."""
    prompt = an_object(raw.get("prompt", {}), "prompt")
    gate = an_object(raw.get("gate", {}), "gate")
    return ModelCard(
        name=line(raw.get("name", name), "name"),
        language=line(raw.get("language", "zh"), "language"),
        max_turn_s=number(raw.get("max_turn_s", 60.0), "max_turn_s", *TURN_S),
        prefix=text(prompt.get("prefix", PREFIX), "prefix"),
        suffix=text(prompt.get("suffix", SUFFIX), "suffix"),
        presets=_presets(gate),
        promises={
            name: _promise(own["promise"], f"gate {name}", of_gate)
            for name, own in gate.items()
            if "promise" in own
        },
        calibrated=bool(gate),
        attributes=_attributes(an_object(raw.get("attributes", {}), "attributes")),
        no_speech=text(raw["no_speech"], "no_speech") if "no_speech" in raw else "",
        openings=_texts(raw.get("openings", []), "openings"),
    )


def _texts(raw: Any, name: str) -> tuple[str, ...]:
    if not isinstance(raw, list):
        raise ValueError(f"{name} is {shown(raw)}, not a list of texts")
    return tuple(_short(each, name) for each in raw)


def _short(raw: Any, name: str) -> str:
    """A text that a sentence's form can hold: each character is a step of it."""
    if len(found := text(raw, name)) > MOST_CHARACTERS:
        raise ValueError(f"{name} has {len(found)} characters; {MOST_CHARACTERS} at most")
    return found


def _presets(raw: Mapping[str, Any]) -> dict[str, Preset]:
    """The default presets with the checkpoint's own thresholds in their place."""
    if unknown := set(raw) - set(PRESETS):
        raise ValueError(
            f"the gate has no preset {sorted(unknown)[0]!r}; there are {' and '.join(PRESETS)}"
        )
    return {
        name: _preset(raw[name], f"gate {name}", preset) if name in raw else preset
        for name, preset in PRESETS.items()
    }


def _preset(raw: Any, name: str, default: Preset) -> Preset:
    """At least one threshold, and those alone that are given. A misspelt one is not off."""
    own = an_object(raw, name)
    if unknown := set(own) - set(THRESHOLDS):
        raise ValueError(f"{name} has no {sorted(unknown)[0]!r}; it takes {', '.join(THRESHOLDS)}")
    given = [key for key in RANGES if own.get(key) is not None or (key == "entropy" and key in own)]
    if not given:
        raise ValueError(f"{name} has no threshold; give one of {', '.join(RANGES)}")
    limits: dict[str, Any] = dict.fromkeys(RANGES) | {
        key: number(own[key], key, *RANGES[key]) for key in given
    }
    gate = Gate(**limits)
    return Preset(gate, Plan(k=whole(own.get("k", default.k), "k", 1, 64), gate=gate).k)


def _promise(raw: Any, name: str, language: str) -> Promise:
    own = an_object(raw, f"the promise of {name}")
    return Promise(
        risk=number(own["risk"], "risk", 0.0, 1.0),
        confidence=number(own["confidence"], "confidence", 0.0, 1.0),
        signal=line(own["signal"], "signal"),
        num_clips=whole(own["num_clips"], "num_clips", 1, 10**9),
        num_groups=whole(own.get("num_groups", 1), "num_groups", 1, 10**9),
        date=line(own["date"], "date"),
        cloud=line(own["cloud"], "cloud"),
        fingerprint=line(own["fingerprint"], "fingerprint") if "fingerprint" in own else "",
        profiles=_profiles(own.get("profiles", ["full"]), name),
        languages=_texts(own.get("languages", [language]), f"languages of the promise of {name}"),
    )


def _profiles(raw: Any, name: str) -> tuple[Profile, ...]:
    known: list[Profile] = list(PROFILES)
    if not isinstance(raw, list) or not raw or any(profile not in known for profile in raw):
        told = f"a list of {', '.join(known)}"
        raise ValueError(f"the promise of {name} has profiles {shown(raw)}, not {told}")
    return tuple(profile for profile in known if profile in raw)


def _attributes(raw: Mapping[str, Any]) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Every attribute that `parse` knows has levels, every level a name and phrases."""
    for attribute, levels in raw.items():
        if not isinstance(levels, list) or not levels:
            raise ValueError(f"{attribute} is {shown(levels)}, not a list of levels")
        for level in levels:
            _check_level(an_object(level, f"a level of {attribute}"), attribute)
    parse("", raw)
    return raw


def _check_level(level: Mapping[str, Any], attribute: str) -> None:
    name = line(level["name"], f"a level's name of {attribute}")
    phrases = level["phrases"]
    if not isinstance(phrases, list) or not phrases:
        raise ValueError(f"level {name!r} of {attribute} has no list of phrases")
    for phrase in phrases:
        _short(phrase, f"a phrase of {attribute}")


def write_gate(directory: Path, out: Path, gate: Mapping[str, Any], language: str = "") -> None:
    """Write the directory's card to the file `out` with `gate` (preset -> thresholds) for its own;
    the rest stays. language: that the thresholds are for; "" is the card's first.

    A reader sees the old file or the new one, never half of one. Raises ModelError, also for a gate
    that `read_card` would refuse.
    """
    file = directory / FILE
    try:
        raw = an_object(json.loads(file.read_text("utf-8")), "the card") if file.exists() else {}
        further = {**an_object(raw.get("languages", {}), "languages")}
        if language in further:
            further[language] = _with_gate(an_object(further[language], language), gate)
            whole_card = {**raw, "languages": further}
        else:
            whole_card = _with_gate(raw, gate)
        card_of(whole_card, directory.name)
        replace_text(out, json.dumps(whole_card, ensure_ascii=False, indent=1) + "\n")
    except (ValueError, KeyError) as error:
        raise ModelError(file, f"is not a model card ({error}); mend it first") from None
    except OSError as error:
        raise ModelError(
            out, f"cannot be written ({error.strerror}); choose another place with --out"
        ) from None


def _with_gate(raw: Mapping[str, Any], gate: Mapping[str, Any]) -> dict[str, Any]:
    return {**raw, "gate": {**an_object(raw.get("gate", {}), "gate"), **gate}}


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
