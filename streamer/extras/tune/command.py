"""`streamer tune`: recordings and a model in, a tuned model in the same layout out.

OUT.tuning keeps finished work; run the command again to continue. OUT appears whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from msgspec.structs import replace

from streamer.commands.process import Failed, aligned, put, tell
from streamer.config import ConfigError
from streamer.core.declare import REQUIRED, DeviceName, option
from streamer.core.measures.levels import NUM_LEVELS
from streamer.extras import missing
from streamer.extras.tune.data import files_in, speakers, split, turns_of
from streamer.model.checkpoint.card import ModelCard, read_card, replace_text
from streamer.model.checkpoint.weights import ModelError, Shapes, checked
from streamer.model.thinker import check_memory, resolve

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


@dataclass(frozen=True)
class Base:
    """The model to tune. card: its own, with the embedded cloud's phrases if it has none; these are
    learnt."""

    directory: Path
    shapes: Shapes
    card: ModelCard
    num_params: int


def run(options: TuneOptions) -> int:
    """Make the model `options.out` and print its figures. Raises ConfigError, Failed, ModelError,
    OSError."""
    if (why := missing("tune", "torch", "transformers", "peft", "accelerate")) is not None:
        raise ConfigError(why)
    from streamer.model.engines.load import check_device

    who, base, out = speakers(options.speakers), base_of(options.cloud), Path(options.out)
    check_device(options.device)
    if options.device == "cpu":  # a step may still need more
        check_memory(base.directory, base.shapes, "fast", 0)
    if out.exists():
        raise Failed(f"{out} exists; name a directory that does not, or remove it")
    files = files_in(options.files)
    work = out.with_name(out.name + ".tuning")
    try:
        work.mkdir(exist_ok=True)
        claim(work / "options.json", asdict(options) | {"out": None, "files": files})
        learnt, held = split(turns_of(files, work), who, options.seed)
        tell(f"learns from {len(learnt)} turns, holds out {len(held)}")
        from streamer.extras.tune.learn import learn_and_finish

        table = learn_and_finish(base, learnt, held, options, work)
    except OSError as error:
        why = error.strerror or str(error)  # safetensors gives no number
        told = f"{work} or {out} cannot be written or read ({why:.120})"
        raise Failed(f"{told}; make room, run it again to go on") from None
    for line in aligned(table):
        put(line)
    put(f"written: {out}, with a MODEL_CARD.md that lacks a licence")
    put(f"its gate is not calibrated: streamer calibrate CLIPS --risk 0.05 --edge {out}")
    return 0


def claim(file: Path, now: Mapping[str, object]) -> None:
    """Write what the run in this folder is made with, or compare it with an earlier run's. Raises
    Failed, OSError."""
    text = json.dumps(now, indent=1) + "\n"
    if not file.exists():
        replace_text(file, text)
    elif file.read_text("utf-8") != text:
        told = f"{file.parent} is of a run with other options or recordings"
        raise Failed(f"{told}; give them as they were, another --out, or remove {file.parent}")


def base_of(spec: str) -> Base:
    """Raises ModelError, also for phrases that do not fit the measures' levels."""
    directory = resolve(spec, "cloud")
    card = read_card(directory)
    if not card.attributes:
        words = read_card(resolve("embedded", "cloud"))
        card = replace(card, attributes=words.attributes, openings=words.openings)
    for name, levels in card.attributes.items():
        if len(levels) != NUM_LEVELS[name]:
            told = f"its card has {len(levels)} levels of {name}, recordings are labelled in"
            way = "change its phrases, or leave them out of its card"
            raise ModelError(directory, f"{told} {NUM_LEVELS[name]}; {way}")
    shapes, num_params, _ = checked(directory)
    return Base(directory, shapes, card, num_params)
