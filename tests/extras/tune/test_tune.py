"""`streamer tune`: recordings become turns, training sees what the engine sees, merging is exact."""

import os
import sys

import numpy as np
import pytest
import soundfile
import speech
import tiny
import torch
from answers import hear_turn
from peft import get_peft_model_state_dict, set_peft_model_state_dict
from processes import run_here
from safetensors import safe_open
from transformers import TrainerCallback

from streamer.commands.process import Failed
from streamer.core.attributes import ATTRIBUTES, parse
from streamer.core.audio.turn import Closed, Heard
from streamer.core.rules.form import SentenceForm
from streamer.extras.tune import learn as of_learn
from streamer.extras.tune.command import TuneOptions, base_of, claim
from streamer.extras.tune.data import Turn, files_in, listen, speakers, split, turns_of
from streamer.extras.tune.learn import IGNORED, Training, collated, examples_of, losses, merge
from streamer.model.checkpoint.card import read_card
from streamer.model.checkpoint.weights import checked
from streamer.model.engines.engine import Row
from streamer.model.listener import items_of
from streamer.model.scheduler import drive
from streamer.model.thinker import load, resolve

EDGE = resolve("embedded", "edge")
BASE = base_of(str(EDGE))
CARD = BASE.card
LEVELS = dict(zip(ATTRIBUTES, (4, 0, 2, 3, 0, 1, 2), strict=True))


def turn(file, **levels):
    return Turn(file, file, sound="", num_embeddings=1, levels=LEVELS | levels)


def test_a_sentence_says_the_levels_and_what_is_unknown_is_not_learnt():
    text, unknown = of_learn.sentence_of(turn("a"), CARD.attributes)
    vocabulary = load("embedded", "edge").vocabulary
    assert SentenceForm(vocabulary, CARD.attributes, openings=CARD.openings).is_whole(text)
    assert parse(text, CARD.attributes) == LEVELS
    assert unknown == []
    text, unknown = of_learn.sentence_of(turn("a", rate=None, arousal=None), CARD.attributes)
    assert None not in parse(text, CARD.attributes).values()
    for (begin, end), name in zip(unknown, ("rate", "arousal"), strict=True):
        assert text[begin:end] in [level["phrases"][0] for level in CARD.attributes[name]]


def test_the_split_parts_speakers_and_stays():
    turns = [turn(f"{who}/{i}.wav") for who in range(40) for i in range(3)]
    learnt, held = split(turns, speakers("folder"), seed=1)
    folders = [{t.file.split("/")[0] for t in side} for side in (learnt, held)]
    assert not folders[0] & folders[1]
    assert 2 <= len(folders[1]) <= 14
    assert len(learnt) + len(held) == len(turns)
    more = [*turns, *(turn(f"{who}/{i}.wav") for who in range(40, 60) for i in range(3))]
    assert {t.name for t in held} <= {t.name for t in split(more, speakers("folder"), seed=1)[1]}


def test_a_table_names_speakers(tmp_path):
    file = tmp_path / "who.csv"
    file.write_text("file,speaker\na.wav,x\nb.wav,x\n", "utf-8-sig")  # as a spreadsheet writes it
    who = speakers(str(file))
    assert who(str(tmp_path / "a.wav")) == who(str(tmp_path / "b.wav")) == "x"
    assert who("elsewhere.wav") == "elsewhere.wav"


def test_a_long_recording_is_heard_in_turns_as_the_engine_hears_them(tmp_path):
    """Same windows, same ids: what is learnt is what is fed."""
    samples = speech.speech(13.0, seed=3)
    soundfile.write(tmp_path / "long.wav", samples, 16_000, subtype="FLOAT")
    turns = listen(str(tmp_path / "long.wav"), tmp_path, 6.0)
    assert len(turns) >= 2
    thinker = load("embedded", "edge")
    windows, mels = [], []
    for item in items_of([samples], 6.0):
        windows += item.windows if isinstance(item, Heard) else []
        if isinstance(item, Closed):
            every = [*windows, *item.rest]
            mels.append(np.concatenate([w.features(item.maximum) for w in every], 1))
            windows = []
    begin = 0
    for each, mel in zip(turns, mels, strict=True):
        sound = np.load(each.sound)
        cut = samples[begin : begin + len(sound["samples"])]
        begin += len(cut)
        np.testing.assert_allclose(sound["samples"], cut, atol=1e-4)
        np.testing.assert_array_equal(sound["mel"], mel)
    listener = hear_turn(thinker, np.load(turns[0].sound)["samples"])
    prompt = tuple(listener.sequence.ids)
    (example,) = examples_of(turns[:1], BASE)
    assert example.ids[: len(prompt)] == prompt
    assert set(example.labels[: len(prompt)]) == {IGNORED}
    assert example.labels[-1] == example.ids[-1]
    listener.close()


def test_broken_and_silent_recordings_are_left_out(tmp_path, capsys):
    """Also under names that are no UTF-8. The turns of an earlier run are taken."""
    clips = tmp_path / "clips"
    clips.mkdir()
    files = [os.fsdecode(os.fsencode(clips) + b"/caf\xe9 %d.wav" % i) for i in range(8)]
    for i, file in enumerate(files):
        soundfile.write(os.fsencode(file), speech.speech(3.5, i), 16_000)
    (clips / "broken.wav").write_bytes(b"RIFF but no recording")
    soundfile.write(clips / "silent.wav", np.zeros(48_000, np.float32), 16_000)
    found = files_in([str(clips)])
    before = turns_of(found, tmp_path)
    told = capsys.readouterr().err
    assert "1 of 10 recordings cannot be read" in told
    assert "broken.wav" in told
    assert "1 turns hold less than 1.5 s" in told
    assert [t.file for t in before] == files
    assert turns_of(found, tmp_path) == before
    (tmp_path / "other").mkdir()
    with pytest.raises(Failed, match="8 are needed"):
        turns_of(files[:1], tmp_path / "other")


@pytest.fixture(scope="module")
def turns(tmp_path_factory):
    """Six turns of bundled speech."""
    folder, found = tmp_path_factory.mktemp("turns"), []
    for i in range(6):
        soundfile.write(folder / f"{i}.wav", speech.speech(3.0 + i / 3, i), 16_000)
        found += listen(str(folder / f"{i}.wav"), folder)
    return found


@pytest.fixture(scope="module")
def examples(turns):
    return examples_of(turns, BASE)


def options(**given):
    usual = {"files": ("x",), "cloud": "x", "out": "x", "batch": 2, "learning_rate": 1e-3}
    return TuneOptions(**usual | given)


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
    model = of_learn.adapted(BASE, options())
    thinker = load("embedded", "edge")
    with torch.no_grad():
        nums = [len(e.labels) - e.labels.count(IGNORED) for e in examples[:3]]
        together = losses(model, collated(examples[:3])).split(nums)
    for turn, example, found in zip(turns, examples, together, strict=False):
        expected = engine_losses(thinker, turn, example)
        torch.testing.assert_close(found[-len(expected) :], expected, atol=2e-3, rtol=1e-3)


def figures(state):
    found = [row.get("eval_loss") for row in state.log_history]
    return state.global_step, state.best_global_step, state.best_metric, found


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
    model = of_learn.adapted(BASE, options())
    whole, best = Training(model, *sides, tmp_path / "whole").run(), weights(model)
    assert whole.global_step == 6
    for at in (2, 3):
        training = Training(of_learn.adapted(BASE, options()), *sides, tmp_path)
        training.add_callback(Kill(at))
        with pytest.raises(Killed):
            training.run()
    for _ in range(2):  # a finished run is not continued
        model = of_learn.adapted(BASE, options())
        assert figures(Training(model, *sides, tmp_path).run()) == figures(whole)
        assert all(torch.equal(weights(model)[name], weight) for name, weight in best.items())


def test_it_learns_and_keeps_the_best(examples, tmp_path):
    model = of_learn.adapted(BASE, options())
    given = options(epochs=12, learning_rate=5e-3, batch=3, at_once=2)
    state = Training(model, examples, examples, given, tmp_path).run()
    assert state.best_metric < 0.7 * state.log_history[0]["eval_loss"]
    with torch.no_grad():
        held = float(losses(model, collated(examples)).mean())
    assert held == pytest.approx(state.best_metric, rel=1e-2)


def test_the_sum_is_the_model_in_the_layout_it_came_in(turns, examples, tmp_path):
    base, out = tiny.full_model(EDGE, tmp_path / "base"), tmp_path / "out"
    out.mkdir()
    model = of_learn.adapted(BASE, options())
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
    checked(out)
    expected = engine_losses(load(str(out), "edge"), turns[0], examples[0])
    with torch.no_grad():
        found = losses(model, collated(examples[:1]))[-len(expected) :]
    torch.testing.assert_close(found, expected, atol=0.05, rtol=0.02)  # the sum is float16's


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips")
    for i in range(12):
        soundfile.write(folder / f"{i}.wav", speech.speech(3.0 + i / 6, i), 16_000)
    return folder


def test_a_missing_package_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "peft", None)
    status, _, told = run_here("tune", "x", "--cloud", "embedded", "--out", tmp_path / "mine")
    assert status == 2
    assert told == ("streamer: tune needs peft; in a clone of streamer: pip install '.[tune]'\n")


def test_a_folder_is_of_one_run(tmp_path):
    file = tmp_path / "options.json"
    for _ in range(2):
        claim(file, {"batch": 16})
    with pytest.raises(Failed, match="is of a run with other options or recordings; give them"):
        claim(file, {"batch": 8})


@pytest.mark.long
def test_the_result_is_a_model_that_speaks_and_can_be_calibrated(clips, tmp_path):
    made, edge = tmp_path / "made", resolve("embedded", "edge")
    options = ("--batch", 2, "--epochs", 1, "--learning-rate", 0.001, "--out", made)
    status, out, told = run_here("tune", clips, "--cloud", edge, *options)
    assert status == 0, told
    assert "all" in out
    card = read_card(made)
    assert (card.name, card.gate) == ("made", {})
    assert (made / "adapter" / "adapter_model.safetensors").exists()
    told = (made / "MODEL_CARD.md").read_text("utf-8")
    assert "LICENCE OF THIS MODEL: not chosen yet" in told
    assert "| all |" in told
    assert run_here("describe", clips / "0.wav", "--edge", made, "--quiet")[0] == 0
    files = [clips / f"{i}.wav" for i in range(12)]
    assert run_here("calibrate", *files, "--risk", "0.5", "--edge", made)[0] == 0
    assert read_card(made).gate
