"""What a model directory says beside its weights. In: `streamer.json` (may be absent). Out: a ModelCard.

Prompt, turn length, calibrated gate thresholds per preset, and the attribute phrases to read a sentence back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamer.core.gate import PRESETS, Gate, Preset
from streamer.model.weights import ModelError

FILE = "streamer.json"
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
            name=str(raw.get("name", directory.name)),
            language=str(raw.get("language", "zh")),
            max_turn_s=float(raw.get("max_turn_s", 60.0)),
            prefix=str(prompt.get("prefix", PREFIX)),
            suffix=str(prompt.get("suffix", SUFFIX)),
            presets=_presets(raw.get("gate", {})),
            calibrated=bool(raw.get("gate")),
            attributes=raw.get("attributes", {}),
        )
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise ModelError(file, f"is not a model card ({error}); mend it or remove it to use the defaults") from None


def _presets(raw: Mapping[str, Mapping[str, Any]]) -> dict[str, Preset]:
    """The default presets with the checkpoint's own thresholds in their place."""
    own = {
        name: Preset(
            Gate(entropy=float(p["entropy"]), margin=p.get("margin"), log_prob=p.get("log_prob")),
            k=int(p.get("k", PRESETS["fluent"].k)),
        )
        for name, p in raw.items()
    }
    return {**PRESETS, **own}
