"""One way of decoding, run over clips. In: a config. Out: what each clip's turn gave, as live audio
would."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamer.assembly.models import Models
from streamer.config import Config
from streamer.core.attributes import parse
from streamer.core.decoding.counts import Counts
from streamer.recording import LIVE_SAMPLES, as_live, hear

RATE_HZ = 16_000
PACED_SAMPLES = 2 * RATE_HZ


@dataclass(frozen=True)
class Run:
    """ids and text of one turn; times in seconds since its last sample arrived."""

    text: str
    ids: list[int]
    n_first: int  # of them, up to the first text
    stop_reason: str
    counts: Counts
    levels: dict[str, int | None]
    ttft_s: float
    total_s: float

    @property
    def tokens_per_s(self) -> float | None:
        after = len(self.ids) - self.n_first
        decode = self.total_s - self.ttft_s
        return after / decode if after > 0 and decode > 0 else None


def run(models: Models, samples: np.ndarray) -> Run:
    """One turn: all before its last 100 ms is prefilled when they arrive."""
    turn = models.new_turn()
    try:
        return _answer(models, turn, hear(turn, iter([samples])))
    finally:
        turn.close()


def run_paced(models: Models, samples: np.ndarray) -> Run:
    """The same, its last 2 s at real time: a machine that listens is not as warm as one that is
    busy."""
    turn = models.new_turn()
    try:
        first = max(0, len(samples) - PACED_SAMPLES)
        for chunk in as_live(iter([samples[:first]])):
            turn.push(chunk)
        for at in range(first, len(samples), LIVE_SAMPLES):
            time.sleep(LIVE_SAMPLES / RATE_HZ)
            arrived = turn.clock()
            turn.push(samples[at : at + LIVE_SAMPLES])
        turn.finish()
        return _answer(models, turn, arrived)
    finally:
        turn.close()


def _answer(models: Models, turn: Any, arrived: float) -> Run:
    text = ""
    ids = []
    first = None
    n_first = 0
    for delta in turn.answer():
        text = text + delta.text
        ids = ids + list(delta.ids)
        if first is None and delta.text:
            first = delta.at
            n_first = len(ids)
    done = turn.clock()
    return Run(
        text,
        ids,
        n_first,
        turn.stop_reason,
        turn.counts,
        parse(text, models.phrases),
        (first or done) - arrived,
        done - arrived,
    )


def models_of(**options: object) -> Models:
    """Models of a config by keywords."""
    return Models(Config.from_mapping(options))
