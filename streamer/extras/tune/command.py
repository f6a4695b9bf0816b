"""`streamer tune`: recordings and a model in, a tuned model in the same layout out.

OUT.tuning keeps finished work; run the command again to continue. OUT appears whole or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from streamer.commands.process import put, tell
from streamer.config import ConfigError
from streamer.extras import missing
from streamer.extras.tune.data import Data, TuneError, Turn, speakers, split, turns_of
from streamer.extras.tune.options import TuneOptions
from streamer.model.checkpoint.card import replace_text
from streamer.model.devices import is_ours, num_cores

if TYPE_CHECKING:
    from streamer.extras.tune.data import Base
    from streamer.extras.tune.learn import State
    from streamer.extras.tune.result import Score

HELD = 0.15  # share of the speakers that is held out
FREE = {"json", "out"}  # may change between two runs
MOST_HELD = 200  # held-out turns to evaluate

RANK = 16  # of the adapters


def run(options: TuneOptions) -> int:
    """Make the model and print its figures. Raises as `tune` does."""
    if (why := missing("tune", "torch", "transformers", "peft", "accelerate")) is not None:
        raise ConfigError(why)
    show(*tune(options), options)
    return 0


def tune(options: TuneOptions) -> tuple[Sequence[Score], State]:
    """Make `options.out`. Raises ConfigError, TuneError, ModelError, and AudioError if a recording
    disappears."""
    from streamer.extras.tune.data import base_of, check_disk
    from streamer.model.engines.load import check_device

    who = speakers(options.speakers)
    base = base_of(options.cloud)
    check_device(options.device)
    with working(options, base.fingerprint) as work:
        check_disk(base.directory, Path(options.out))
        turns = turns_of(options.files, work, num_cores())
        learnt, held = split(turns, who, HELD, options.seed)
        data = Data(learnt, _spread(held, MOST_HELD), who)
        tell(data.summary())
        state = _learn(base, data, options, work)
        from streamer.extras.tune.result import finish

        return finish(base, data, state, options, work), state


def _spread(turns: Sequence[Turn], most: int) -> list[Turn]:
    step = max(1.0, len(turns) / most)
    return [turns[int(i * step)] for i in range(min(most, len(turns)))]


def _learn(base: Base, data: Data, options: TuneOptions, work: Path) -> State:
    """Raises TuneError, ModelError."""
    import torch

    from streamer.extras.tune.data import check_memory
    from streamer.extras.tune.learn import Adapted, Examples, Training, digest_of
    from streamer.model.engines.load import set_torch_threads

    audio_id = base.shapes.audio_id
    makes = Examples(base.directory, base.card, base.words.attributes, audio_id, work / "features")
    learnt, held = makes.of(data.learnt), makes.of(data.held)
    claim(work / "examples.json", {"recordings": digest_of(learnt, held)})
    dtype = torch.float32 if options.device == "cpu" else torch.bfloat16
    check_memory(base, dtype.itemsize, options.device)
    set_torch_threads(base.num_params)
    model = Adapted(base.directory, base.shapes, options.device, dtype, RANK, options.seed)
    training = Training(model, learnt, held, options, work)
    if training.checkpoint:
        tell(f"goes on from {Path(training.checkpoint).name}")
    state = training.run()
    names = ("step", "learnt", "held")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in state.curve]
    (work / "curve.jsonl").write_text("\n".join(lines) + "\n")
    model.model.save_pretrained(work / "adapter")
    return state


def show(scores: Sequence[Score], state: State, options: TuneOptions) -> None:
    if options.json:
        losses, rows = (state.curve[0][2], state.best_loss), [asdict(each) for each in scores]
        told = {"written": options.out, "losses": losses, "steps": state.step, "scores": rows}
        put(json.dumps(told, indent=2))
        return
    put(f"{'attribute':<10} {'turns':>5}  before  after  most frequent level")
    for s in scores:
        put(f"{s.attribute:<10} {s.num:>5}  {s.before:6.3f}  {s.after:5.3f}  {s.usual:.3f}")
    put(f"written: {options.out}, with a MODEL_CARD.md that lacks a licence")
    put(f"its gate is not calibrated: streamer calibrate CLIPS --risk 0.05 --edge {options.out}")


@contextmanager
def working(options: TuneOptions, fingerprint: str) -> Iterator[Path]:
    """The work folder OUT.tuning, locked for this run.

    Raises TuneError if OUT exists, another run holds the folder, or it belongs to a run with other
    options.
    """
    out = Path(options.out)
    if out.exists():
        raise TuneError(f"{out} exists; name a directory that does not, or remove it")
    work = out.with_name(out.name + ".tuning")
    told = {n: v for n, v in asdict(options).items() if n not in FREE}
    held = -1
    try:
        try:
            work.mkdir(exist_ok=True)
            held = os.open(work, os.O_RDONLY)
            owned = is_ours(held)
            if owned is False:
                why = f"{work} is in use by another run"
                raise TuneError(f"{why}; wait for its end, or give another --out")
            claim(work / "options.json", told | {"fingerprint": fingerprint})
            for half in work.glob("half-*") if owned else ():  # of a run that was killed
                shutil.rmtree(half)
        except OSError as error:
            why = f"{work} cannot be written ({error.strerror}); choose another place with --out"
            raise TuneError(why) from None
        yield work
    finally:
        if held >= 0:
            os.close(held)


def claim(file: Path, now: Mapping[str, object]) -> None:
    """Write or compare what a run in this folder is made with. Raises TuneError, OSError."""
    now = json.loads(json.dumps(now))
    if not file.exists():
        replace_text(file, json.dumps(now, indent=1) + "\n")
        return
    try:
        before = json.loads(file.read_text("utf-8"))
    except ValueError:
        told = f"{file} is not of a run of ours"
        raise TuneError(f"{told}; remove {file.parent} to begin anew") from None
    for name in (name for name in now if before.get(name) != now[name]):
        told = f"{file.parent} is of a run with {name} {before.get(name)!r}, not {now[name]!r}"
        raise TuneError(f"{told}; give it as it was, another --out, or remove {file.parent}")
