"""The options of `streamer tune`. Each is declared once (core/declare.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from streamer.commands.options import Json
from streamer.config import Device
from streamer.core.declare import Checked, about

DATA = "what it learns from"
RESULT = "the model"
LEARNING = "how it learns"
MACHINE = "where it runs"


@dataclass(frozen=True, kw_only=True)
class TuneOptions(Checked):
    """Options of `streamer tune`."""

    recordings: Annotated[
        tuple[str, ...],
        about(
            "recordings of people who speak, or directories of such; no text is needed",
            group=DATA,
            positional=True,
            metavar="RECORDING",
        ),
    ]
    model: Annotated[
        str,
        about(
            "the model to tune: a model directory, a hub id, or embedded (its cloud)",
            "Qwen2.5-Omni-3B",
            group=RESULT,
            metavar="SPEC",
        ),
    ]
    out: Annotated[
        str,
        about(
            "the tuned model's new directory; OUT.tuning beside it holds checkpoints",
            "mine",
            group=RESULT,
            metavar="DIR",
        ),
    ]
    speakers: Annotated[
        str,
        about(
            "file or folder: each is one speaker; or a table (.csv, .jsonl) with the columns file "
            "and speaker",
            "speakers.csv",
            group=DATA,
            metavar="HOW",
        ),
    ] = "file"
    turn_s: Annotated[
        float,
        about(
            "longer recordings are cut into turns of this length, in seconds",
            "15",
            group=DATA,
            ge=4,
            le=60,
        ),
    ] = 30.0
    epochs: Annotated[int, about("passes over the turns", "5", group=LEARNING, ge=1, le=1000)] = 3
    batch: Annotated[int, about("turns of a batch", "32", group=LEARNING, ge=1, le=1024)] = 16
    learning_rate: Annotated[
        float,
        about(
            "the highest learning rate, after a short warm-up", "0.0001", group=LEARNING, gt=0, lt=1
        ),
    ] = 2e-4
    rank: Annotated[int, about("rank of the adapters", "32", group=LEARNING, ge=1, le=512)] = 16
    seed: Annotated[
        int, about("seed of the split, the order and the adapters", "1", group=LEARNING, ge=0)
    ] = 0
    device: Device = "cpu"
    at_once: Annotated[
        int, about("turns of a batch in memory at once", "4", group=MACHINE, ge=1, le=256)
    ] = 1
    json: Json = False
