"""`streamer tune`. In: recordings, a model. Out: the model, tuned, in the layout it came in.

Steps that were done are kept in OUT.tuning: run it again to go on. OUT is there whole or not at
all.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from streamer.audio.file import AudioError
from streamer.commands.process import fail, put, tell
from streamer.config import ConfigError
from streamer.extras.tune.options import TuneOptions
from streamer.extras.tune.split import Data
from streamer.extras.tune.turn import LearntTurn, TuneError

if TYPE_CHECKING:
    from streamer.extras.tune.base import Base
    from streamer.extras.tune.card import Facts
    from streamer.extras.tune.state import State

EXTRA = "pip install 'streamer-speech[tune]'"


def run(options: TuneOptions) -> int:
    """The exit status: 0, or 1 where there is no tuned model. Raises ConfigError."""
    from streamer.model.checkpoint.weights import ModelError

    if find_spec("peft") is None:
        raise ConfigError(f"tune needs peft: {EXTRA}")
    try:
        found = tune(options)
    except (TuneError, ModelError, AudioError) as error:
        fail(str(error))
        return 1
    show(found, options)
    return 0


def tune(options: TuneOptions) -> Facts:
    """What came of it; the model is in `options.out`. Raises ConfigError, TuneError, ModelError,
    and AudioError where a recording went away."""
    from streamer.extras.tune.base import base_of
    from streamer.extras.tune.corpus import turns_of
    from streamer.extras.tune.finish import finish
    from streamer.extras.tune.memory import check_disk
    from streamer.extras.tune.place import working
    from streamer.extras.tune.split import speakers, split
    from streamer.model.engines.load import check_device

    who = speakers(options.speakers)
    base = base_of(options.model)
    check_device(options.device)
    with working(options, base.fingerprint) as work:
        check_disk(base.directory, Path(options.out))
        turns = turns_of(options.recordings, options.turn_s, work, options.jobs or _cores())
        learnt, held = split(turns, who, options.held, options.seed)
        held = _some(held, options.judged)
        data = Data(learnt, held, who)
        tell(data.told())
        state = _learn(base, data, options, work)
        return finish(base, data, state, options, work)


def _cores() -> int:
    from streamer.model.kernels.threads import num_cores

    return num_cores()


def _some(turns: Sequence[LearntTurn], most: int) -> list[LearntTurn]:
    """So many of them, spread evenly."""
    step = max(1.0, len(turns) / most)
    return [turns[int(i * step)] for i in range(min(most, len(turns)))]


def _learn(base: Base, data: Data, options: TuneOptions, work: Path) -> State:
    """Raises TuneError, ModelError."""
    import torch

    from streamer.extras.tune.examples import Examples
    from streamer.extras.tune.lora import Adapted
    from streamer.extras.tune.memory import check_memory
    from streamer.extras.tune.plot import plot
    from streamer.extras.tune.training import Training
    from streamer.model.engines.load import set_torch_threads

    makes = Examples(
        base.directory, base.card, base.words.attributes, base.shapes.audio_id, work / "features"
    )
    examples, kept = makes.of(data.learnt), makes.of(data.held)
    usual = "fp32" if options.device == "cpu" else "bf16"
    is_wide = (usual if options.precision == "auto" else options.precision) == "fp32"
    dtype = torch.float32 if is_wide else torch.bfloat16
    need = check_memory(base.shapes, base.num_params, dtype.itemsize, options, [*examples, *kept])
    tell(f"takes about {need.total / 1e9:.1f} GB of memory")
    set_torch_threads(base.num_params)
    model = Adapted(base.directory, base.shapes, options.device, dtype, options.rank, options.seed)
    training = Training(model, examples, kept, options, work)
    if training.state.step:
        tell(f"goes on behind step {training.state.step} of {training.num_steps}")
    state = training.run()
    plot(state, work / "curve.png")
    names = ("step", "learnt", "held")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in state.curve]
    (work / "curve.jsonl").write_text("\n".join(lines) + "\n")
    model.set_adapter(state.best)
    model.model.save_pretrained(work / "adapter")
    return state


def show(found: Facts, options: TuneOptions) -> None:
    """On stdout: a table, or one JSON object."""
    if options.json:
        rows = [score.as_json() for score in found.scores]
        told = {"written": options.out, "losses": found.losses, "steps": found.steps}
        put(json.dumps(told | {"scores": rows}, indent=2))
        return
    put(f"{'attribute':<10} {'turns':>5}  before  after  most frequent level")
    for s in found.scores:
        put(f"{s.attribute:<10} {s.num:>5}  {s.before:6.3f}  {s.after:5.3f}  {s.usual:.3f}")
    put(f"written: {options.out}, with a MODEL_CARD.md that lacks a licence")
    put(f"its gate is not calibrated: streamer calibrate CLIPS --risk 0.05 --edge {options.out}")
