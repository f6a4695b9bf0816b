"""`streamer tune`: its refusals, its folder, and (long) a whole run."""

import sys

import pytest
import soundfile
import speech
from processes import run_here

from streamer.commands.process import Failed
from streamer.extras.tune.command import claim
from streamer.model.checkpoint.card import read_card
from streamer.model.thinker import resolve


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips")
    for i in range(12):
        soundfile.write(folder / f"{i}.wav", speech.speech(3.0 + i / 6, i), 16_000)
    return folder


def test_what_cannot_be_is_one_line(monkeypatch, tmp_path, clips):
    status, _, told = run_here("tune", clips, "--cloud", "embedded", "--out", tmp_path)
    assert status == 1
    assert told.endswith("exists; name a directory that does not, or remove it\n")
    monkeypatch.setitem(sys.modules, "peft", None)
    status, _, told = run_here("tune", "x", "--cloud", "embedded", "--out", tmp_path / "mine")
    assert status == 2
    assert told == ("streamer: tune needs peft; in a clone of streamer: pip install '.[tune]'\n")


def test_a_folder_is_of_one_run(tmp_path):
    file = tmp_path / "options.json"
    for _ in range(2):
        claim(file, {"batch": 16})
    with pytest.raises(
        Failed, match="is of a run with other options or recordings; give them as they were"
    ):
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
