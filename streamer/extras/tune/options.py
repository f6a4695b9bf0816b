"""The options of `streamer tune`. Each is declared once (core/declare.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streamer.commands.options import Checked
from streamer.config import Config
from streamer.core.choices import DeviceName
from streamer.core.declare import REQUIRED, Group, option, same

DATA = Group("what it learns from", "--speakers folder --held 0.2")
RESULT = Group("the model", "--model embedded --out mine")
LEARNING = Group("how it learns", "--epochs 5 --rank 32")
MACHINE = Group("where it runs", "--device cuda --batch 32 --at-once 8")


@dataclass(frozen=True, kw_only=True)
class TuneOptions(Checked):
    """Of `streamer tune`."""

    recordings: tuple[str, ...] = option(
        REQUIRED,
        DATA,
        "recordings of people who speak, or directories of such; no text is needed",
        metavar="RECORDING",
        is_argument=True,
    )
    model: str = option(
        REQUIRED,
        RESULT,
        "what is tuned: a model directory, a hub id, or embedded (its cloud)",
        "Qwen2.5-Omni-3B",
        metavar="SPEC",
    )
    out: str = option(
        REQUIRED,
        RESULT,
        "the tuned model's directory, which is made; OUT.tuning beside it holds what a run needs "
        "to go on",
        "mine",
        metavar="DIR",
    )
    speakers: str = option(
        "file",
        DATA,
        "who speaks: file or folder (each is a speaker of its own), or a table (.csv, .jsonl) with "
        "the columns file and speaker",
        "speakers.csv",
        metavar="HOW",
    )
    held: float = option(
        0.15, DATA, "share of the speakers that is kept apart", "0.2", low=0, high=0.9, is_open=True
    )
    judged: int = option(
        200, DATA, "turns of those kept apart that are looked at, at most", "50", low=1, high=10_000
    )
    turn_s: float = option(
        30.0, DATA, "longer recordings are cut into turns of so many seconds", "15", low=4, high=60
    )
    epochs: int = option(3, LEARNING, "times that each turn is heard", "5", low=1, high=1000)
    batch: int = option(16, LEARNING, "turns for each step", "32", low=1, high=1024)
    learning_rate: float = option(
        2e-4, LEARNING, "the highest, behind a short rise", "0.0001", low=0, high=1, is_open=True
    )
    rank: int = option(16, LEARNING, "of the adapters", "32", low=1, high=512)
    check_steps: int = option(
        20, LEARNING, "steps between two looks at the loss held out", "50", low=1, high=100_000
    )
    patience: int = option(
        4, LEARNING, "such looks without a gain, behind which it ends", "8", low=1, high=1000
    )
    seed: int = option(0, LEARNING, "of the split, the order and the adapters", "1", low=0)
    device: DeviceName = same(Config, "device", group=MACHINE)
    precision: Literal["auto", "bf16", "fp32"] = option(
        "auto", MACHINE, "of the frozen weights; auto: fp32 on a CPU, bf16 on a GPU", "bf16"
    )
    at_once: int = option(
        1, MACHINE, "turns of a step that are in memory together", "4", low=1, high=256
    )
    save_minutes: float = option(
        10.0,
        MACHINE,
        "minutes between two states that are kept; 0: each step's",
        "5",
        low=0,
        high=1440,
    )
    jobs: int | None = option(
        None,
        MACHINE,
        "processes that listen to recordings",
        "2",
        low=1,
        high=64,
        unset="one for each core",
    )
    json: bool = option(False, RESULT, "one JSON object on stdout")
