"""`streamer tune`: its refusals, its folder, and (long) a run that is killed."""

import os
import signal
import subprocess
import sys
import time

import pytest
import soundfile
import speech
from safetensors.torch import load_file

from streamer.cli import main
from streamer.commands.process import Failed
from streamer.extras.tune.command import claim
from streamer.model.checkpoint.card import read_card
from streamer.model.thinker import resolve

EDGE = resolve("embedded", "edge")
PATIENCE_S = 3600  # a busy machine decides nothing


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips")
    for i in range(12):
        soundfile.write(folder / f"{i}.wav", speech.speech(3.0 + i / 6, i), 16_000)
    return folder


def tune(capsys, *args):
    try:
        status = main(["tune", *map(str, args)])
    except SystemExit as usage:
        status = usage.code
    _, err = capsys.readouterr()
    return status, err.strip()


def test_without_peft_it_says_what_to_install(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "peft", None)
    status, told = tune(capsys, "x", "--cloud", "embedded", "--out", tmp_path / "mine")
    assert status == 2
    assert told == ("streamer: tune needs peft; in a clone of streamer: pip install '.[tune]'")


def test_a_folder_is_of_one_run(tmp_path):
    file = tmp_path / "options.json"
    for _ in range(2):
        claim(file, {"batch": 16})
    with pytest.raises(Failed, match="is of a run with other options; give them as they were"):
        claim(file, {"batch": 8})


def test_what_is_there_already_is_not_replaced(capsys, tmp_path, clips):
    status, told = tune(capsys, clips, "--cloud", "embedded", "--out", tmp_path)
    assert status == 1
    assert told.endswith("exists; name a directory that does not, or remove it")


def started(*args):
    command = [sys.executable, "-m", "streamer", "tune", *map(str, args)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


@pytest.mark.long
def test_killed_and_run_again_it_gives_what_an_unbroken_run_gives(clips, tmp_path):
    """The result is a model: it speaks, has a card, and can be calibrated."""
    usual = ("--batch", 2, "--epochs", 3, "--learning-rate", 0.001)
    args = (clips, "--cloud", EDGE, *usual)
    whole = started(*args, "--out", tmp_path / "whole")
    _, told = whole.communicate(timeout=PATIENCE_S)
    assert whole.returncode == 0, told
    broken = started(*args, "--out", tmp_path / "broken")
    training = tmp_path / "broken.tuning" / "training"
    until = time.monotonic() + PATIENCE_S
    while (
        not any(training.glob("checkpoint-*/trainer_state.json"))
        and broken.poll() is None
        and time.monotonic() < until
    ):
        time.sleep(0.01)
    os.kill(broken.pid, signal.SIGKILL)
    broken.communicate(timeout=PATIENCE_S)
    assert broken.returncode == -signal.SIGKILL
    assert not (tmp_path / "broken").exists()
    again = started(*args, "--out", tmp_path / "broken")
    _, told = again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 0, told
    assert "goes on from checkpoint-" in told
    for name in ("model.safetensors", "adapter/adapter_model.safetensors"):
        ours, theirs = (load_file(tmp_path / run / name) for run in ("broken", "whole"))
        assert all(ours[key].equal(theirs[key]) for key in theirs)
    _check_model(tmp_path / "whole", clips)


def _check_model(made, clips):
    card = read_card(made)
    assert (card.name, card.calibrated) == ("whole", False)
    told = (made / "MODEL_CARD.md").read_text("utf-8")
    assert "LICENCE OF THIS MODEL: not chosen yet" in told
    assert "| all |" in told
    assert main(["describe", str(clips / "0.wav"), "--edge", str(made), "--quiet"]) == 0
    risk = ("--risk", "0.5", "--edge", str(made))
    assert main(["calibrate", *(str(clips / f"{i}.wav") for i in range(12)), *risk]) == 0
    assert read_card(made).calibrated
