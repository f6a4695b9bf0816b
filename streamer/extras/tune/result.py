"""The tuned model: adapters learnt and merged, evaluation on held-out turns, and its two cards."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import torch
from peft.tuners.lora import LoraLayer
from safetensors import safe_open
from safetensors.torch import save_file

from streamer.core.attributes import ATTRIBUTES
from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.extras.tune.command import Base, TuneOptions
from streamer.extras.tune.data import Turn
from streamer.extras.tune.learn import OPENING, State, Training, adapted, examples_of
from streamer.model.checkpoint.card import FILE, PREFIX, SUFFIX
from streamer.model.checkpoint.weights import wanted_name, weight_files
from streamer.model.engines.load import SMALL
from streamer.progress import Bar

LICENCE = "LICENCE OF THIS MODEL: not chosen yet; look at the base model's and at your recordings'"
RANK = 16  # of the adapters
Said = list[dict[str, int | None]]


# An attribute; the number of held-out turns whose level is known; the shares of these that say it
# before and after tuning, and of the most frequent level.
Score = tuple[str, int, float, float, float]


def learn_and_finish(
    base: Base, learnt: Sequence[Turn], held: Sequence[Turn], options: TuneOptions, work: Path
) -> Sequence[Score]:
    """Write `options.out`, whole or not at all. Raises Failed, ModelError, OSError."""
    made, plain, out = work / "made", work / "base", Path(options.out)
    for directory in (made, plain):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
    model_of = base.directory, base.card, base.words.attributes, base.shapes.audio_id
    dtype = torch.float32 if options.device == "cpu" else torch.bfloat16
    # before weights are read: threads that wait for work on small tensors take a second of CPU time
    if base.num_params <= SMALL and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    model = adapted(base.directory, options.device, dtype, RANK, options.seed)
    sides = [examples_of(turns, *model_of) for turns in (learnt, held)]
    state = Training(model, sides[0], sides[1], options, work).run()
    merge(base.directory, model, made)
    model.save_pretrained(made / "adapter")
    for file in base.directory.iterdir():  # the base model, to speak under the new card
        if file.is_file() and file.name != FILE:
            (plain / file.name).symlink_to(file.resolve())
    for directory in (made, plain):
        (directory / FILE).write_text(streamer_json(base, out.name), "utf-8")
    before = anyio.run(_say, plain, held, options, "the base model speaks")
    after = anyio.run(_say, made, held, options, "the tuned model speaks")
    found = scores(held, before, after)
    told = model_card(base, len(learnt), state, found, options)
    (made / "MODEL_CARD.md").write_text(told, "utf-8")
    os.rename(made, out)
    return found


def merge(directory: Path, model: Any, out: Path) -> None:
    """Write `directory` with the model's adapters added into the empty folder `out`.

    Names, shards and types stay those of the release, and tensors that the adapters do not touch
    are copied. Raises OSError.
    """
    layers = {
        wanted_name(f"{name}.weight"): layer
        for name, layer in model.base_model.model.named_modules()
        if isinstance(layer, LoraLayer)
    }
    for file in sorted(directory.iterdir()):
        if file.is_file() and file.suffix != ".safetensors":
            shutil.copyfile(file, out / file.name)
    for file in weight_files(directory):
        with safe_open(file, framework="pt") as shard:
            tensors = {name: shard.get_tensor(name) for name in shard.keys()}  # noqa: SIM118
            metadata = shard.metadata()
        for name, weight in tensors.items():
            if layer := layers.pop(wanted_name(name) or "", None):
                change = layer.get_delta_weight("default").detach().cpu().float()
                tensors[name] = (weight.float() + change).to(weight.dtype)
        save_file(tensors, out / file.name, metadata or {"format": "pt"})
    if layers:
        raise ValueError(f"no tensor for {next(iter(layers))}")


async def _say(directory: Path, turns: Sequence[Turn], options: TuneOptions, what: str) -> Said:
    """The levels that a model says of each turn, in mode edge. Raises ModelError."""
    from streamer import Describer

    said: Said = []
    edge, device = str(directory), options.device
    with Bar(what, len(turns)) as bar:
        async with Describer.open(mode="edge", edge=edge, device=device) as describer:
            for turn in turns:
                samples = np.load(turn.sound)["samples"]
                found = await describer.describe((samples, SAMPLE_RATE_HZ))
                said.append(dict(found.attributes))
                bar.show(len(said), f"{len(said)} of {len(turns)}")
    return said


def scores(turns: Sequence[Turn], before: Said, after: Said) -> list[Score]:
    """One score per attribute that is known of any turn, and "all", their mean."""
    found: list[Score] = []
    for name in ATTRIBUTES:
        said = [
            (turn.levels[name], old[name], new[name])
            for turn, old, new in zip(turns, before, after, strict=True)
            if turn.levels[name] is not None
        ]
        if said:
            levels, old, new = map(np.array, zip(*said, strict=True))
            usual = float(np.bincount(levels).max()) / len(said)
            shares = float(np.mean(old == levels)), float(np.mean(new == levels)), usual
            found.append((name, len(said), *shares))
    b, a, u = np.mean([shares for _, _, *shares in found], axis=0).tolist()
    return [*found, ("all", len(turns), b, a, u)]


def streamer_json(base: Base, name: str) -> str:
    """The base model's card under a new name, with the phrases that were learnt.

    Thresholds are left out: they were found for other weights. Further
    languages are left out: sentences in the first one were learnt.
    """
    file, card, words = base.directory / FILE, base.card, base.words
    raw: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    for found in ("gate", "languages"):
        raw.pop(found, None)
    plain = {"version": 1, "language": card.language, "max_turn_s": card.max_turn_s}
    plain |= {"prompt": {"prefix": PREFIX, "suffix": SUFFIX}}
    said = {"name": name, "attributes": words.attributes, "openings": words.openings or (OPENING,)}
    return json.dumps(plain | raw | said, ensure_ascii=False, indent=1) + "\n"


def model_card(
    base: Base, num_learnt: int, state: State, found: Sequence[Score], options: TuneOptions
) -> str:
    rows = "\n".join(
        f"| {name} | {num} | {before:.3f} | {after:.3f} | {usual:.3f} |"
        for name, num, before, after, usual in found
    )
    names = ("epochs", "batch", "learning_rate", "seed")
    how = ", ".join(f"{name} {getattr(options, name):g}" for name in names)
    return f"""# {Path(options.out).name}

{LICENCE}.

Made by `streamer tune` from {base.card.name}: low-rank adapters on the text model and on the
tower's projector, learnt from {num_learnt} turns and added to the weights. `adapter/` holds them
alone, in PEFT's form. The recordings are not included. Their levels were measured from the sound;
no person judged them.

On turns of held-out speakers, the share whose level is the measured one. Both models speak by the
same rules.

| attribute | turns | before | after | always the most frequent level |
|---|---|---|---|---|
{rows}

Held-out loss, nats per token: {state.before:.3f} before, {state.best:.3f} at step
{state.best_step} of {state.step}, which was kept. Options: {how}.

The measures count as the truth, with their errors. The model may hear other kinds of recordings
worse than before, and its other abilities were not tested. It names sound, not feelings.
"""
