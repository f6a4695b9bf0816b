"""The tuned model: merged weights, evaluation on held-out turns, and its two cards."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from streamer.core.attributes import ATTRIBUTES
from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.declare import DeviceName
from streamer.extras.tune.data import Base, Data, TuneError, Turn, samples_of
from streamer.extras.tune.learn import OPENING, SCALE, State, plain_name
from streamer.extras.tune.options import TuneOptions
from streamer.model.checkpoint.card import FILE, PREFIX, SUFFIX, ModelCard
from streamer.model.checkpoint.weights import CALIBRATED, unreadable, wanted_name, weight_files
from streamer.progress import Bar

LICENCE = "LICENCE OF THIS MODEL: not chosen yet; look at the base model's and at your recordings'"
A, B = ".lora_A.weight", ".lora_B.weight"
PEFT = "base_model.model."
HALF = "half-"  # prefix of a folder in which a result is made
Said = list[dict[str, int | None]]


@dataclass(frozen=True, slots=True)
class Score:
    """Shares of the `num` held-out turns whose level of the attribute is known and said right.

    usual: always saying the most frequent of their levels.
    """

    attribute: str
    num: int
    before: float
    after: float
    usual: float


def finish(
    base: Base, data: Data, state: State, options: TuneOptions, work: Path
) -> Sequence[Score]:
    """Write `options.out`, whole or not at all. Raises TuneError, ModelError, AudioError."""
    out = Path(options.out)
    try:
        with tempfile.TemporaryDirectory(dir=work, prefix=HALF) as half:
            made, plain = Path(half) / "made", Path(half) / "base"
            for directory in (made, plain):
                directory.mkdir()
            merge(base.directory, state.best, SCALE, made)
            for file in base.directory.iterdir():  # the base model, to speak under the new card
                if file.is_file() and file.name != FILE:
                    (plain / file.name).symlink_to(file.resolve())
            card = streamer_json(base.directory, base.card, base.words, out.name)
            for directory in (made, plain):
                (directory / FILE).write_text(card, "utf-8")
            before = say(plain, data.held, options.device, "the base model speaks")
            after = say(made, data.held, options.device, "the tuned model speaks")
            found = scores(data.held, before, after)
            told = model_card(base, data, state, found, options)
            (made / "MODEL_CARD.md").write_text(told, "utf-8")
            shutil.copyfile(work / "curve.jsonl", made / "curve.jsonl")
            shutil.copytree(work / "adapter", made / "adapter")
            os.rename(made, out)
    except SafetensorError as error:
        raise unreadable(base.directory, error) from None
    except OSError as error:
        why = error.strerror or str(error)  # safetensors gives no number
        told = f"{out} cannot be written ({why}); make room, run it again to go on"
        raise TuneError(told) from None
    return found


def merge(directory: Path, adapter: Mapping[str, Tensor], scale: float, out: Path) -> None:
    """Write `directory` with the adapter added into the empty folder `out`, shard by shard.

    Names, shards and types stay those of the release, and tensors that the adapter does not touch
    are copied. Raises OSError, and SafetensorError for shards that cannot be read.
    """
    changes = {
        plain_name(name.removeprefix(PEFT).removesuffix(A)) + ".weight": (
            weight,
            adapter[name.removesuffix(A) + B],
        )
        for name, weight in adapter.items()
        if name.endswith(A)
    }
    for file in sorted(directory.iterdir()):
        if file.is_file() and file.suffix != ".safetensors":
            shutil.copyfile(file, out / file.name)
    for file in weight_files(directory):
        _merge_file(file, changes, scale, out / file.name)
    if changes:
        raise ValueError(f"no tensor for {next(iter(changes))}")


def _merge_file(
    file: Path, changes: dict[str, tuple[Tensor, Tensor]], scale: float, out: Path
) -> None:
    """One shard; removes what it used from `changes`."""
    with safe_open(file, framework="pt") as shard:
        names = list(shard.keys())
        if not any(wanted_name(name) in changes for name in names):
            shutil.copyfile(file, out)
            return
        tensors = {name: shard.get_tensor(name) for name in names}
        metadata = shard.metadata()
    for name, weight in tensors.items():
        pair = changes.pop(wanted_name(name) or "", None)
        if pair is not None:
            down, up = (part.float() for part in pair)
            tensors[name] = torch.add(weight.float(), up @ down, alpha=scale).to(weight.dtype)
    save_file(tensors, out, metadata or {"format": "pt"})


def say(directory: Path, turns: Sequence[Turn], device: DeviceName, what: str) -> Said:
    """The levels that a model says of each turn, in mode edge. Raises ModelError, AudioError."""
    return anyio.run(_say, directory, turns, device, what)


async def _say(directory: Path, turns: Sequence[Turn], device: DeviceName, what: str) -> Said:
    from streamer import Describer

    said: Said = []
    with Bar(what, len(turns)) as bar:
        async with Describer.open(mode="edge", edge=str(directory), device=device) as describer:
            for samples in samples_of(turns):
                found = await describer.describe((samples, SAMPLE_RATE_HZ))
                said.append(dict(found.attributes))
                bar.show(len(said), f"{len(said)} of {len(turns)}")
    return said


def scores(turns: Sequence[Turn], before: Said, after: Said) -> list[Score]:
    """One score per attribute that is known of any turn, and "all", their mean."""
    found = []
    for name in ATTRIBUTES:
        known = [i for i, turn in enumerate(turns) if turn.levels[name] is not None]
        if known:
            true = [turns[i].levels[name] for i in known]
            right = {
                when: float(np.mean([said[i][name] == t for i, t in zip(known, true, strict=True)]))
                for when, said in (("before", before), ("after", after))
            }
            usual = max(map(true.count, set(true))) / len(true)
            found.append(Score(name, len(known), **right, usual=usual))
    mean = {n: float(np.mean([getattr(s, n) for s in found])) for n in ("before", "after", "usual")}
    return [*found, Score("all", len(turns), **mean)]


def streamer_json(directory: Path, card: ModelCard, words: ModelCard, name: str) -> str:
    """The base model's card under a new name, with the phrases of `words`.

    Thresholds and confidence curves are left out: they were found for other weights. Further
    languages are left out: sentences in the first one were learnt.
    """
    file = directory / FILE
    raw: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    for found in (*CALIBRATED, "languages"):
        raw.pop(found, None)
    plain = {
        "version": 1,
        "language": card.language,
        "max_turn_s": card.max_turn_s,
        "prompt": {"prefix": PREFIX, "suffix": SUFFIX},
    }
    said: dict[str, Any] = {"name": name, "attributes": words.attributes}
    said |= {"no_speech": words.no_speech, "openings": list(words.openings or (OPENING,))}
    return json.dumps(plain | raw | said, ensure_ascii=False, indent=1) + "\n"


def model_card(
    base: Base, data: Data, state: State, found: Sequence[Score], options: TuneOptions
) -> str:
    known = ", ".join(
        f"{name} {sum(turn.levels[name] is not None for turn in data.learnt)}"
        for name in data.learnt[0].levels
    )
    how = ", ".join(
        f"{name} {getattr(options, name):g}"
        for name in ("epochs", "batch", "learning_rate", "seed")
    )
    sides = zip(("learnt from", "held out"), data.sides(), strict=True)
    turns = "\n".join(f"| {side} | {n} | {who} | {h:.2f} |" for side, (n, who, h) in sides)
    rows = "\n".join(
        f"| {s.attribute} | {s.num} | {s.before:.3f} | {s.after:.3f} | {s.usual:.3f} |"
        for s in found
    )
    return f"""# {Path(options.out).name}

{LICENCE}.

Made by `streamer tune` from {base.card.name} (fingerprint {base.fingerprint}): low-rank adapters on
the text model and on the tower's projector, added to the weights. `adapter/` holds the adapters
alone, in PEFT's form.

The recordings are not included. Their levels were measured from the sound; no person judged them.

| | turns | speakers | hours |
|---|---|---|---|
{turns}

Turns learnt from whose level is known: {known}.

On turns of held-out speakers, the share whose level is the measured one. Both models speak by the
same rules.

| attribute | turns | before | after | always the most frequent level |
|---|---|---|---|---|
{rows}

Held-out loss, nats per token: {state.curve[0][2]:.3f} before, {state.best_loss:.3f} at step
{state.best_step} of {state.step}, which was kept. curve.jsonl holds all evaluations.

Options: {how}.

The measures count as the truth, with their errors. The model may hear other kinds of recordings
worse than before, and its other abilities were not tested. It names sound, not feelings.
"""
