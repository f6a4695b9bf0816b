"""One recording under every threshold of every signal. In: the pair, a file. Out: its turns'
paths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamer.assembly.models import Models
from streamer.audio.file import open_audio
from streamer.core.calibration.branches import Block, Branches
from streamer.core.calibration.certify import Paths
from streamer.core.decoding.gate import SIGNALS, doubt
from streamer.recording import chunks_of, cut_parts, hear

if TYPE_CHECKING:
    from streamer.core.decoding.speculate import Plan


@dataclass(frozen=True)
class Clip:
    """paths: preset -> signal -> each turn's paths at every threshold."""

    file: str
    paths: dict[str, dict[str, list[Paths]]]


def hear_clip(models: Models, file: str) -> Clip | None:
    """One recording at every threshold of every signal and preset; None where nobody speaks. Raises
    AudioError."""
    edge = models.first
    plans = {name: models.config.plan(preset) for name, preset in edge.card.presets.items()}
    found: dict[str, dict[str, list[Paths]]] = {
        name: {signal: [] for signal in SIGNALS} for name in plans
    }
    with open_audio(file) as audio:
        for part in cut_parts(chunks_of(audio), models.max_turn_s):
            for name, branches in _walks(models, part, plans):
                for signal in SIGNALS:

                    def score(block: Block, signal: str = signal) -> float:
                        return doubt(signal, edge.vocabulary, block.ids, block.signals)

                    found[name][signal].append(branches.paths(score))
    return Clip(file, found) if all(found[name]["entropy"] for name in plans) else None


def _walks(
    models: Models, part: Iterator[Any], plans: dict[str, Plan]
) -> Iterator[tuple[str, Branches]]:
    """Per preset the walk over one turn, while its KV slots are held; nothing where nobody
    speaks."""
    from streamer.model.shadow import Shadow

    turn = models.new_turn()
    try:
        hear(turn, part)
        if pair := turn.prefilled():
            for name, plan in plans.items():
                yield (
                    name,
                    Branches(Shadow(*pair, plan).block_at, models.first.vocabulary, plan.rules),
                )
    finally:
        turn.close()
