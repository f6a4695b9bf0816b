"""Training sees what the engine sees, an interrupted run equals a whole one, merging is exact."""

import numpy as np
import pytest
import soundfile
import speech
import tiny
import torch
from peft import get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import safe_open
from stock import hear_turn
from transformers import TrainerCallback

from streamer.extras.tune.data import listen
from streamer.extras.tune.learn import IGNORED, Training, collated, examples_of, losses
from streamer.extras.tune.learn import adapted as adapted_model
from streamer.extras.tune.options import TuneOptions
from streamer.extras.tune.result import merge
from streamer.model.checkpoint.card import read_card
from streamer.model.checkpoint.layout import check_layout, shapes_of
from streamer.model.engines.engine import Row
from streamer.model.scheduler import drive
from streamer.model.thinker import load, resolve

EDGE = resolve("embedded", "edge")


@pytest.fixture(scope="module")
def turns(tmp_path_factory):
    """Six turns of bundled speech."""
    folder = tmp_path_factory.mktemp("turns")
    found = []
    for i in range(6):
        soundfile.write(folder / f"{i}.wav", speech.speech(3.0 + i / 3, i), 16_000)
        found += listen(str(folder / f"{i}.wav"), folder)[1]
    return found


@pytest.fixture(scope="module")
def examples(turns):
    card = read_card(EDGE)
    return examples_of(turns, EDGE, card, card.attributes, shapes_of(EDGE).audio_id)


def options(**given):
    usual = {"files": ("x",), "cloud": "x", "out": "x", "batch": 2, "learning_rate": 1e-3}
    return TuneOptions(**usual | given)


def adapted(rank=4):
    return adapted_model(EDGE, "cpu", torch.float32, rank, seed=0)


def weights(model):
    """A copy of the adapters."""
    return {n: w.detach().clone() for n, w in get_peft_model_state_dict(model).items()}


def drawn(model):
    """Adapters that change something."""
    chance = torch.Generator().manual_seed(1)
    return {n: 0.05 * torch.randn(w.shape, generator=chance) for n, w in weights(model).items()}


def engine_losses(thinker, turn, example):
    """The same cross-entropy, by the engine, as a stream is fed."""
    listener = hear_turn(thinker, np.load(turn.sound)["samples"])
    drive(thinker.engine, listener.feed(0))
    num = len(listener.sequence.ids)
    answer = example.ids[num:]
    row = Row(listener._slot, num, answer[:-1], num_logits=len(answer) - 1)
    logits = torch.from_numpy(thinker.engine.step([row])[0])
    listener.close()
    found = torch.nn.functional.cross_entropy(logits, torch.tensor(answer[1:]), reduction="none")
    return found[torch.tensor(example.labels[num + 1 :]) != IGNORED]


def test_it_learns_on_what_the_engine_says(turns, examples):
    model = adapted()
    thinker = load("embedded", "edge")
    with torch.no_grad():
        nums = [len(e.labels) - e.labels.count(IGNORED) for e in examples[:3]]
        together = losses(model, collated(examples[:3])).split(nums)
    for turn, example, found in zip(turns, examples, together, strict=False):
        expected = engine_losses(thinker, turn, example)
        torch.testing.assert_close(found[-len(expected) :], expected, atol=2e-3, rtol=1e-3)


class Killed(Exception):
    pass


class Kill(TrainerCallback):
    """Ends a run after the checkpoint of a step."""

    def __init__(self, at):
        self.at = at

    def on_save(self, args, state, control, **more):
        if state.global_step == self.at:
            raise Killed


def test_an_interrupted_run_gives_what_an_uninterrupted_one_gives(examples, tmp_path):
    """To the last bit: adapters, losses, the step that is kept."""
    sides = (examples[:4], examples[4:], options(seed=2**64))
    (tmp_path / "whole").mkdir()
    model = adapted()
    whole, best = Training(model, *sides, tmp_path / "whole").run(), weights(model)
    assert whole.step == 6
    for at in (2, 3):
        training = Training(adapted(), *sides, tmp_path)
        training.add_callback(Kill(at))
        with pytest.raises(Killed):
            training.run()
    for _ in range(2):  # a finished run is not continued
        model = adapted()
        assert Training(model, *sides, tmp_path).run() == whole
        assert all(torch.equal(weights(model)[name], weight) for name, weight in best.items())


def test_it_learns_and_keeps_the_best(examples, tmp_path):
    model = adapted(rank=8)
    given = options(epochs=12, learning_rate=5e-3, batch=3, at_once=2)
    state = Training(model, examples, examples, given, tmp_path).run()
    assert state.best < 0.7 * state.before
    with torch.no_grad():
        held = float(losses(model, collated(examples)).mean())
    assert held == pytest.approx(state.best, rel=1e-2)


def test_the_sum_is_the_model_in_the_layout_it_came_in(turns, examples, tmp_path):
    base, out = tiny.full_model(EDGE, tmp_path / "base"), tmp_path / "out"
    out.mkdir()
    model = adapted()
    set_peft_model_state_dict(model, drawn(model))
    merge(base, model, out)
    assert {f.name for f in out.iterdir()} == {f.name for f in base.iterdir()}
    for file in sorted(base.glob("*.safetensors")):
        with safe_open(file, "pt") as was, safe_open(out / file.name, "pt") as now:
            assert was.metadata() == now.metadata()
            assert list(was.keys()) == list(now.keys())
            for name in was.keys():  # noqa: SIM118 - a shard is no mapping
                a, b = was.get_tensor(name), now.get_tensor(name)
                is_changed = "_proj.weight" in name and "layers" in name and "tower" not in name
                is_changed |= name == "thinker.audio_tower.proj.weight"
                assert a.dtype == b.dtype
                assert torch.equal(a, b) != is_changed, name
    check_layout(out, shapes_of(out))
    expected = engine_losses(load(str(out), "edge"), turns[0], examples[0])
    with torch.no_grad():
        found = losses(model, collated(examples[:1]))[-len(expected) :]
    torch.testing.assert_close(found, expected, atol=0.05, rtol=0.02)  # the sum is float16's
