"""`streamer tune`: adapters learnt from recordings of your own. torch is imported when it runs."""

from __future__ import annotations

from dataclasses import dataclass

from streamer.core.declare import REQUIRED, DeviceName, option

DATA = "what it learns from"
LEARNING = "how it learns"


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """Tune a model on recordings that are labelled by measures: adapters are learnt and merged.
    Needs `pip install '.[tune]'`."""

    files: tuple[str, ...] = option(REQUIRED, DATA, positional=True, metavar="FILE")
    cloud: str = option(REQUIRED, "the model", metavar="SPEC")
    out: str = option(REQUIRED, "the model", metavar="DIR")
    speakers: str = option("file", DATA, metavar="HOW")
    epochs: int = option(3, LEARNING, ge=1, le=1000)
    batch: int = option(16, LEARNING, ge=1, le=1024)
    learning_rate: float = option(2e-4, LEARNING, gt=0, lt=1)
    seed: int = option(0, LEARNING, ge=0)
    device: DeviceName = option("cpu", "where it runs")
    at_once: int = option(1, "where it runs", ge=1, le=256)
