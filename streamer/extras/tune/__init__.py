"""`streamer tune`: adapters learnt from recordings of your own. torch is imported when it runs."""

from __future__ import annotations

from dataclasses import dataclass

from streamer.core.declare import REQUIRED, DeviceName, device_option, option

DATA = "what it learns from"
LEARNING = "how it learns"


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """Tune a model on recordings that are labelled by measures: adapters are learnt and merged.
    Needs `pip install '.[tune]'`."""

    files: tuple[str, ...] = option(REQUIRED, group=DATA, positional=True, metavar="FILE")
    """recordings of people who speak, or directories of such; no text is needed"""
    cloud: str = option(REQUIRED, group="the model", metavar="SPEC")
    """the model to tune: embedded, a directory, or a hub id"""
    out: str = option(REQUIRED, group="the model", metavar="DIR")
    """the tuned model's new directory; OUT.tuning beside it holds checkpoints"""
    speakers: str = option("file", group=DATA, metavar="HOW")
    """file or folder: each is one speaker; or a table (.csv) with the columns file and speaker"""
    epochs: int = option(3, "passes over the turns", LEARNING, ge=1, le=1000)
    batch: int = option(16, "turns of a batch", LEARNING, ge=1, le=1024)
    learning_rate: float = option(2e-4, group=LEARNING, gt=0, lt=1)
    """the highest learning rate, after a short warm-up"""
    seed: int = option(0, "seed of the split, the order and the adapters", LEARNING, ge=0)
    device: DeviceName = device_option()
    at_once: int = option(1, "turns of a batch in memory at once", "where it runs", ge=1, le=256)
