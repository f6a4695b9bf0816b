"""One way of decoding, run over clips. In: a config. Out: what each clip's turn gave, as live audio would."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from streamer.config import Config
from streamer.core.attributes import parse
from streamer.core.counts import Counts
from streamer.models import Models
from streamer.recording import hold_back_last_window


@dataclass(frozen=True)
class Run:
    """ids and text of one turn; times in seconds since its last sample arrived."""

    text: str
    ids: list[int]
    stop_reason: str
    counts: Counts
    levels: dict[str, int | None]
    ttft_s: float
    prefill_s: float
    total_s: float

    @property
    def tokens_per_s(self) -> float | None:
        decode = self.total_s - self.prefill_s
        return len(self.ids) / decode if self.ids and decode > 0 else None


def run(models: Models, samples: np.ndarray) -> Run:
    """One turn: the earlier windows are prefilled before the last one arrives."""
    turn = models.new_turn()
    try:
        *earlier, last = pieces(samples)
        for piece in earlier:
            turn.push(piece)
        arrived = turn.clock()
        turn.push(last)
        turn.finish()
        text, ids, first = "", [], None
        for delta in turn.answer():
            first = first or delta.at
            text, ids = text + delta.text, ids + list(delta.ids)
        done = turn.clock()
        prefilled = turn.prefilled_at or done
        return Run(text, ids, turn.stop_reason, turn.counts, parse(text, models.phrases),
                   (first or done) - arrived, prefilled - arrived, done - arrived)  # fmt: skip
    finally:
        turn.close()


def pieces(samples: np.ndarray) -> Iterator[np.ndarray]:
    return hold_back_last_window(iter([samples]))


def models_of(**options: object) -> Models:
    """Models of a config by keywords."""
    return Models(Config.from_mapping(options))
