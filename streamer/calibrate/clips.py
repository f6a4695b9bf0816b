"""One recording under every threshold of every signal. In: the pair, a file. Out: its turns'
paths, of which a Calibration is made."""

from __future__ import annotations

from dataclasses import dataclass

from streamer.assembly.models import Models
from streamer.audio.file import open_audio
from streamer.core.calibration.branches import Block, Branches
from streamer.core.calibration.certify import Certified, Paths
from streamer.core.decoding.gate import SIGNALS, doubt
from streamer.recording import chunks_of


@dataclass(frozen=True)
class Clip:
    """paths: preset -> signal -> each turn's paths at every threshold."""

    file: str
    paths: dict[str, dict[str, list[Paths]]]


@dataclass(frozen=True)
class Calibration:
    """What came out. skipped: preset -> signal -> share of blocks, on the clips that chose; empty
    where none did."""

    results: list[Certified]
    skipped: dict[str, dict[str, float]]
    certifying: list[Clip]
    num_failed: int  # files that could not be read


def hear_clip(models: Models, file: str) -> Clip | None:
    """One recording at every threshold; None where nobody speaks. Raises AudioError."""
    from streamer.model.offline import hear_parts
    from streamer.model.shadow import Shadow

    edge = models.first
    thinkers = [thinker for thinker in models.pair if thinker is not None]
    plans = {name: models.plan_of(preset) for name, preset in edge.card.presets.items()}
    found: dict[str, dict[str, list[Paths]]] = {
        name: {signal: [] for signal in SIGNALS} for name in plans
    }
    with open_audio(file) as audio:
        for (drafter, target), has_speech in hear_parts(thinkers, chunks_of(audio)):
            for name, plan in plans.items() if has_speech else ():
                block_at = Shadow(drafter, target, plan).block_at
                branches = Branches(block_at, edge.vocabulary, plan.rules)
                for signal in SIGNALS:

                    def score(block: Block, signal: str = signal) -> float:
                        return doubt(signal, edge.vocabulary, block.ids, block.signals)

                    found[name][signal].append(branches.paths(score))
    return Clip(file, found) if all(found[name]["entropy"] for name in plans) else None
