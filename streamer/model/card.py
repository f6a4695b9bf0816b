"""What a model directory says beside its weights. In: `streamer.json` (may be absent). Out: a ModelCard.

Prompt, turn length, calibrated gate thresholds per preset, and the attribute phrases to read a sentence back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamer.core.attributes import parse
from streamer.core.gate import PRESETS, Gate, Preset
from streamer.core.speculate import Plan
from streamer.model.weights import ModelError

FILE = "streamer.json"
TURN_S = (2.0, 300.0)  # one window; where the stock extractor cuts
# For checkpoints without a card. The instruction stands BEFORE the audio: after the last sample only the few ids of
# the suffix are left to prefill (engine-facts: 26 ms against 190 at 29 s).
PREFIX = (
    "<|im_start|>system\n你是一位语音分析员。<|im_end|>\n<|im_start|>user\n"
    "请听录音，用一句完整的中文描述说话人说话的方式：语速、音调、起伏、音量、停顿、音色和情绪，不要复述内容。<|audio_bos|>"
)
SUFFIX = "<|audio_eos|><|im_end|>\n<|im_start|>assistant\n"


@dataclass(frozen=True)
class ModelCard:
    """name, language; prefix and suffix: the prompt's text with special ids spelled, around the audio."""

    name: str
    language: str = "zh"
    max_turn_s: float = 60.0
    prefix: str = PREFIX
    suffix: str = SUFFIX
    presets: Mapping[str, Preset] = field(default_factory=lambda: dict(PRESETS))
    calibrated: bool = False  # whether the thresholds are this checkpoint's own
    attributes: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


def read_card(directory: Path) -> ModelCard:
    """The card of a model directory, defaults where it has none. Raises ModelError for one that cannot be used."""
    file = directory / FILE
    if not file.is_file():
        return ModelCard(name=directory.name)
    try:
        raw = json.loads(file.read_text("utf-8"))
        prompt = raw.get("prompt", {})
        return ModelCard(
            name=_text(raw.get("name", directory.name), "name"),
            language=_text(raw.get("language", "zh"), "language"),
            max_turn_s=_number(raw.get("max_turn_s", 60.0), "max_turn_s", *TURN_S),
            prefix=_text(prompt.get("prefix", PREFIX), "prefix"),
            suffix=_text(prompt.get("suffix", SUFFIX), "suffix"),
            presets=_presets(raw.get("gate", {})),
            calibrated=bool(raw.get("gate")),
            attributes=_attributes(raw.get("attributes", {})),
        )
    except (ValueError, TypeError, AttributeError, KeyError, OSError, RecursionError) as error:
        reason = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ModelError(file, f"is not a model card ({reason}); mend it or remove it to use the defaults") from None


def _presets(raw: Mapping[str, Mapping[str, Any]]) -> dict[str, Preset]:
    """The default presets with the checkpoint's own thresholds in their place."""
    if not isinstance(raw, dict):
        raise ValueError(f"gate is {raw!r}, not an object")
    if unknown := set(raw) - set(PRESETS):
        raise ValueError(f"the gate has no preset {sorted(unknown)[0]!r}; there are {' and '.join(PRESETS)}")
    return {name: _preset(raw[name], preset) if name in raw else preset for name, preset in PRESETS.items()}


def _preset(own: Mapping[str, Any], default: Preset) -> Preset:
    """A gate has an entropy threshold; margin and log_prob only where they are given."""
    k = own.get("k", default.k)
    if not isinstance(k, int) or isinstance(k, bool):
        raise ValueError(f"k is {k!r}, not a whole number")
    margin, log_prob = own.get("margin"), own.get("log_prob")
    gate = Gate(
        entropy=_number(own["entropy"], "entropy", 0.0, 100.0),
        margin=None if margin is None else _number(margin, "margin", 0.0, 1.0),
        log_prob=None if log_prob is None else _number(log_prob, "log_prob", -1000.0, 0.0),
    )
    return Preset(gate, Plan(k=k, gate=gate).k)


def _number(value: Any, name: str, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"{name} is {value!r}, not a number from {least:g} to {most:g}")
    return float(value)


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {value!r}, not a text")
    return value


def _attributes(raw: Any) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Every level has a name and phrases, all of them texts; the attributes are those that `parse` knows."""
    parse("", raw)
    for attribute, levels in raw.items():
        for level in levels:
            _text(level["name"], f"a level's name of {attribute}")
            if not isinstance(level["phrases"], list) or not level["phrases"]:
                raise ValueError(f"level {level['name']!r} of {attribute} has no list of phrases")
            for phrase in level["phrases"]:
                _text(phrase, f"a phrase of {attribute}")
    known: Mapping[str, Sequence[Mapping[str, Any]]] = raw
    return known
