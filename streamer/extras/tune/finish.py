"""The best adapter in; the tuned model out: merged, judged, with cards, whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from safetensors import SafetensorError

from streamer.extras.tune.base import Base
from streamer.extras.tune.card import Facts, model_card, streamer_json
from streamer.extras.tune.judge import say, scores
from streamer.extras.tune.lora import SCALE
from streamer.extras.tune.merge import merge
from streamer.extras.tune.options import TuneOptions
from streamer.extras.tune.place import HALF
from streamer.extras.tune.split import Data
from streamer.extras.tune.state import State
from streamer.extras.tune.turn import TuneError
from streamer.model.checkpoint.card import FILE
from streamer.model.checkpoint.weights import unreadable


def finish(base: Base, data: Data, state: State, options: TuneOptions, work: Path) -> Facts:
    """Writes `options.out`. Raises TuneError for want of room, ModelError, AudioError."""
    out = Path(options.out)
    try:
        with tempfile.TemporaryDirectory(dir=work, prefix=HALF) as half:
            made, plain = Path(half) / "made", Path(half) / "base"
            for directory in (made, plain):
                directory.mkdir()
            merge(base.directory, state.best, SCALE, made)
            _link(base.directory, plain)
            card = streamer_json(base.directory, base.card, base.words, out.name)
            for directory in (made, plain):
                (directory / FILE).write_text(card, "utf-8")
            before = say(plain, data.held, options.device, "the base model speaks")
            after = say(made, data.held, options.device, "the tuned model speaks")
            facts = _facts(base, data, state)
            facts.scores.extend(scores(data.held, before, after))
            (made / "MODEL_CARD.md").write_text(model_card(facts, options, out.name), "utf-8")
            for name in ("curve.png", "curve.jsonl"):
                if (work / name).exists():
                    shutil.copyfile(work / name, made / name)
            shutil.copytree(work / "adapter", made / "adapter")
            os.rename(made, out)
    except SafetensorError as error:
        raise unreadable(base.directory, error) from None
    except OSError as error:
        why = error.strerror or str(error)  # safetensors gives no number
        told = f"{out} cannot be written ({why}); make room, run it again to go on"
        raise TuneError(told) from None
    return facts


def _link(directory: Path, out: Path) -> None:
    """The base model, so that it can speak under the tuned one's card."""
    for file in directory.iterdir():
        if file.is_file() and file.name != FILE:
            (out / file.name).symlink_to(file.resolve())


def _facts(base: Base, data: Data, state: State) -> Facts:
    known = {
        name: sum(turn.levels[name] is not None for turn in data.learnt)
        for name in data.learnt[0].levels
    }
    return Facts(
        base=base.card.name,
        fingerprint=base.fingerprint,
        num_turns=(len(data.learnt), len(data.held)),
        num_speakers=data.num_speakers,
        hours=data.hours,
        known=known,
        steps=state.step,
        best_step=state.best_step,
        losses=(state.curve[0][2], state.best_loss),
    )
