"""What stands beside a tuned model's weights: its streamer.json and its MODEL_CARD.md. In: the base
model's card, what was learnt from, what came out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamer.extras.tune.judge import Score
from streamer.extras.tune.options import TuneOptions
from streamer.model.checkpoint.card import FILE, PREFIX, SUFFIX, ModelCard
from streamer.model.checkpoint.fingerprint import CALIBRATED

LICENCE = "LICENCE OF THIS MODEL: not chosen yet; look at the base model's and at your recordings'"


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the model card tells. hours, speakers: (learnt from, kept apart)."""

    base: str
    fingerprint: str
    num_turns: tuple[int, int]
    num_speakers: tuple[int, int]
    hours: tuple[float, float]
    known: Mapping[str, int]  # attribute -> turns learnt from whose level is known
    steps: int
    best_step: int
    losses: tuple[float, float]  # held out, nats per id: before, at the best step
    scores: list[Score] = field(default_factory=list)


def streamer_json(directory: Path, card: ModelCard, words: ModelCard, name: str) -> str:
    """The base model's own card under a new name, with the phrases of `words`, and without what was
    found for other weights: a gate's thresholds, curves of confidence."""
    file = directory / FILE
    raw: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    for found in CALIBRATED:
        raw.pop(found, None)
    plain = {
        "version": 1,
        "language": card.language,
        "max_turn_s": card.max_turn_s,
        "prompt": {"prefix": PREFIX, "suffix": SUFFIX},
    }
    said = {"name": name, "attributes": words.attributes, "no_speech": words.no_speech}
    return json.dumps(plain | raw | said, ensure_ascii=False, indent=1) + "\n"


def model_card(facts: Facts, options: TuneOptions, name: str) -> str:
    """MODEL_CARD.md, in Markdown."""
    before, best = facts.losses
    learnt, kept = zip(facts.num_turns, facts.num_speakers, facts.hours, strict=True)
    rows = [
        f"| {s.attribute} | {s.num} | {s.before:.3f} | {s.after:.3f} | {s.usual:.3f} |"
        for s in facts.scores
    ]
    known = ", ".join(f"{name} {num}" for name, num in facts.known.items())
    how = ", ".join(
        f"{name} {getattr(options, name):g}"
        for name in ("epochs", "batch", "learning_rate", "rank", "seed", "turn_s")
    )
    return f"""# {name}

{LICENCE}.

Made by `streamer tune` from {facts.base} (fingerprint {facts.fingerprint}): low-rank adapters on
the text model and on the tower's projector, added to the weights. `adapter/` holds them alone, in
PEFT's form.

## Data

Recordings of the one who tuned it; none is kept here. Their levels were measured from the sound
alone, no person judged them.

| | turns | speakers | hours |
|---|---|---|---|
| learnt from | {learnt[0]} | {learnt[1]} | {learnt[2]:.2f} |
| kept apart | {kept[0]} | {kept[1]} | {kept[2]:.2f} |

Turns learnt from whose level is known: {known}.

## Figures

On turns of speakers kept apart: the share whose level is the measured one. Both models speak by the
same rules.

| attribute | turns | before | after | always the most frequent level |
|---|---|---|---|---|
{chr(10).join(rows)}

Loss held out, nats per token: {before:.3f} before, {best:.3f} at step {facts.best_step} of
{facts.steps}, which is the one that was kept. curve.png shows it. Options: {how}.

## Limits

The measures are the truth here, with their errors. Recordings unlike these may be heard worse than
before. Whatever else the base model could do was not looked at. It names sound, not feelings.
"""
