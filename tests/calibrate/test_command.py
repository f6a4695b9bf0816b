"""`streamer calibrate` on real recordings and the shipped pair: what it writes, what that changes,
what it refuses."""

import dataclasses
import json
import math
import shutil
import sys

import numpy as np
import pytest
import soundfile
import speech
from answers import answer

from streamer.assembly.models import Models
from streamer.audio.file import open_audio
from streamer.calibrate.clips import hear_clip
from streamer.cli import main
from streamer.config import Config
from streamer.core.calibration.certify import at, losses_of
from streamer.core.decoding.gate import SIGNALS, Gate
from streamer.core.rules.sampling import Sampling
from streamer.model import thinker
from streamer.model.checkpoint.card import read_card
from streamer.model.checkpoint.fingerprint import fingerprint_of
from streamer.model.thinker import resolve
from streamer.recording import chunks_of


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    """Eight real recordings of 2 to 4 s, played a little slow or fast: edge and cloud differ on
    some."""
    folder, files = tmp_path_factory.mktemp("clips"), []
    for seed in range(8):
        soundfile.write(
            folder / f"{seed}.wav", speech.speech(2.0 + seed / 4, seed), (14_000, 21_000)[seed % 2]
        )
        files.append(str(folder / f"{seed}.wav"))
    return files


@pytest.fixture
def edge(tmp_path):
    """A copy of the shipped edge that may be written to."""
    return shutil.copytree(resolve("embedded", "edge"), tmp_path / "edge")


@pytest.fixture(scope="module")
def heard(clips):
    """(the shipped pair, the first three clips at every threshold)"""
    models = Models(Config())
    return models, [hear_clip(models, file) for file in clips[:3]]


def calibrate(capsys, *args):
    status = main(["calibrate", *map(str, args)])
    out, err = capsys.readouterr()
    return status, out, err.splitlines()


def described(capsys, files, edge):
    """What gated mode gives over files."""
    assert main(["describe", *files, "--json", "--edge", str(edge)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_calibrated_card_changes_what_gated_mode_uploads(clips, edge, capsys):
    file = edge / "streamer.json"
    before = json.loads(file.read_text("utf-8"))
    uploads = {}
    for risk in (0.2, 0.9):
        status, out, err = calibrate(
            capsys, *clips[:4], "--risk", risk, "--edge", edge, "--json", "--signal", "margin"
        )
        assert status == 0
        half = f"{risk / 2:g}"  # four clips can keep .2 at the least
        few = f"streamer: 4 clips are too few for half of --risk ({half}): preset quality keeps a risk of 0.2; "
        assert err == ([few + "give more, or --quality-risk"] if risk == 0.2 else [])
        fluent = json.loads(out)["presets"][0]
        assert fluent["loss"] <= risk
        card = read_card(edge)
        assert card.presets["fluent"].gate.margin == pytest.approx(fluent["threshold"])
        assert card.presets["fluent"].gate.entropy is None
        promise = card.promises["fluent"]
        assert (promise.risk, promise.num_clips, promise.signal, promise.cloud) == (
            risk,
            4,
            "margin",
            "embedded-cloud",
        )
        assert promise.fingerprint == fingerprint_of(resolve("embedded", "cloud"))
        uploads[risk] = sum(row["cloud_calls"] for row in described(capsys, clips[:4], edge))
    assert uploads[0.2] > uploads[0.9]
    after = json.loads(file.read_text("utf-8"))
    assert {**after, "gate": 0} == {**before, "gate": 0}, "the other fields stay"
    names = sorted(path.name for path in edge.iterdir())
    assert names == sorted(
        [*(p.name for p in resolve("embedded", "edge").iterdir()), "calibration.png"]
    )
    assert (edge / "calibration.png").read_bytes().startswith(b"\x89PNG")


def test_the_figures_are_those_of_the_clips(clips, heard, edge, capsys, tmp_path, monkeypatch):
    # as where the dev extra is not installed
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    _, found = heard
    out = tmp_path / "card.json"
    status, table, err = calibrate(
        capsys, *clips[:3], "--risk", 0.4, "--edge", edge, "--out", out, "--signal", "entropy"
    )
    assert status == 0
    gate = json.loads(out.read_text("utf-8"))["gate"]
    for preset in ("fluent", "quality"):
        turns = [clip.paths[preset]["entropy"] for clip in found]
        loss = losses_of(turns, [gate[preset]["entropy"]]).mean()
        assert f"{loss:.4f}" in next(line for line in table.splitlines() if line.startswith(preset))
        assert (3 * loss + 1) / 4 <= gate[preset]["promise"]["risk"]
    assert gate["quality"]["promise"]["risk"] == pytest.approx(0.25), (
        "half of .4 needs four clips, three can do .25"
    )
    assert err == [
        "streamer: 3 clips are too few for half of --risk (0.2): preset quality keeps a risk of 0.25; give more, or --quality-risk",
        "streamer: matplotlib is not installed: no plot (pip install matplotlib)",
    ]
    assert table.endswith(f"written: {out}\n")
    assert list(tmp_path.glob("*.png")) == []
    assert read_card(edge).promises == read_card(resolve("embedded", "edge")).promises, (
        "--out leaves the model alone"
    )


def shipped():
    return {path.name: path.read_bytes() for path in resolve("embedded", "edge").iterdir()}


def test_a_copy_with_its_own_thresholds_is_one_command(clips, capsys, tmp_path):
    before, out = shipped(), tmp_path / "myedge"
    given = (*clips[:3], "--risk", 0.5, "--signal", "entropy")
    status, table, _ = calibrate(capsys, *given, "--out", out)
    assert status == 0
    assert table.endswith(
        f"written: {out / 'streamer.json'}, {out / 'calibration.png'}\n"
        f"a model of its own: streamer describe FILE --edge {out}\n"
    )
    assert shipped() == before
    copied = {path.name: path.read_bytes() for path in out.iterdir()}
    assert {**copied, "streamer.json": 0} == {
        **before,
        "streamer.json": 0,
        "calibration.png": copied["calibration.png"],
    }
    assert read_card(out).promises["fluent"].num_clips == 3
    assert [path.name for path in tmp_path.iterdir()] == ["myedge"], "no half copy stays"
    assert described(capsys, clips[:1], out)[0]["text"]
    status, _, err = calibrate(capsys, *given, "--out", out)
    assert (status, err) == (
        1,
        [
            f"streamer: {out}: is a directory that exists; calibrate what is in it with --edge {out}, or name one that does "
            f"not exist yet, or a file, e.g. {out / 'streamer.json'}"
        ],
    )


def test_the_picture_lies_beside_the_file_that_was_asked_for(clips, edge, capsys, tmp_path):
    out = tmp_path / "cards" / "card.json"
    out.parent.mkdir()
    status, _, _ = calibrate(
        capsys, *clips[:3], "--risk", 0.5, "--edge", edge, "--out", out, "--signal", "entropy"
    )
    assert status == 0
    assert sorted(path.name for path in out.parent.iterdir()) == ["card.json", "card.png"]
    assert not (edge / "calibration.png").exists()


def test_force_replaces_the_embedded_thresholds(clips, edge, capsys, monkeypatch):
    monkeypatch.setattr(thinker, "EMBEDDED", edge.parent)
    shutil.copytree(edge, edge.parent / "cloud")
    assert calibrate(capsys, *clips[:3], "--risk", 0.5, "--signal", "entropy")[0] == 2
    assert calibrate(capsys, *clips[:3], "--risk", 0.5, "--signal", "entropy", "--force")[0] == 0
    assert read_card(edge).promises["fluent"].num_clips == 3


def test_every_path_is_what_the_real_pair_does(heard, clips):
    """In the middle of every path's range of thresholds: the same ids, the same uploads."""
    models, found = heard
    num_checked = 0
    for clip, file in zip(found, clips, strict=False):
        signal = list(SIGNALS)[clips.index(file) % len(SIGNALS)]
        (paths,) = clip.paths["fluent"][signal]
        above = math.inf
        for path in paths:
            limit = max(
                path.least,
                above - 1e-3 if math.isinf(path.least) else (path.least + min(above, 9.0)) / 2,
            )
            above = path.least
            # a step of another shape rounds the doubt otherwise
            if abs(limit - path.least) < 1e-4:
                continue
            gate = Gate(**{"entropy": None, signal: SIGNALS[signal] * limit})
            plan = dataclasses.replace(models.plan, gate=gate)
            with open_audio(file) as audio:
                sound = np.concatenate(list(chunks_of(audio)))
            found = answer(*models.pair, plan, Sampling(), sound)
            assert (found.ids, found.cloud_calls) == (path.answer, path.num_uploaded)
            assert at(paths, limit) is path
            num_checked += 1
    assert num_checked >= 12


@pytest.mark.parametrize(
    ("args", "status", "told"),
    [
        (["--risk", "0"], 2, "--risk is 0; it may be above 0 and below 1"),
        (["--risk", "1"], 2, "--risk is 1;"),
        (["--risk", "nan"], 2, "--risk is nan;"),
        (["--risk", "0.5", "--quality-risk", "-1"], 2, "--quality-risk is -1;"),
        (["--risk", "0.5", "--confidence", "1"], 2, "--confidence is 1;"),
        (
            ["--risk", "0.5", "--cloud", "none"],
            2,
            "--cloud is none; calibration needs the model itself",
        ),
        (["--risk", "0.5", "--cloud", "ws://x"], 2, "--cloud is ws://x; calibration needs"),
        (
            ["--risk", "0.02"],
            1,
            "8 clips cannot certify a risk of 0.02: 49 are needed; give more, or a risk of 0.12",
        ),
        (
            ["--risk", "0.2", "--confidence", "0.9"],
            1,
            "8 clips cannot certify a risk of 0.2 with confidence 0.9: ",
        ),
        (["--risk", "0.5", "--edge", "/nowhere"], 1, "no such model directory"),
        (
            ["--risk", "0.5", "--out", "/sys/streamer.json"],
            1,
            "/sys/streamer.json: cannot be written (",
        ),
        (
            ["--risk", "0.5", "--out", "/nowhere/x.json"],
            1,
            "cannot be written (No such file or directory); choose another",
        ),
        (
            ["--risk", "0.5", "--out", "."],
            1,
            ".: is a directory that exists; calibrate what is in it with --edge .,",
        ),
        (
            ["--risk", "0.5", "--out", "/nowhere/x"],
            1,
            "/nowhere/x: cannot be written (No such file or directory)",
        ),
        (
            ["--risk", "0.5"],
            2,
            "the embedded edge's thresholds come with streamer; --out myedge makes a copy of it with",
        ),
        (
            ["--risk", "0.5", "--edge", str(resolve("embedded", "edge"))],
            2,
            "(then --edge myedge); --force replaces them",
        ),
    ],
)
def test_what_cannot_be_done_is_one_line(clips, capsys, args, status, told):
    found, out, err = calibrate(capsys, *clips, *args)
    assert (found, out) == (status, "")
    assert len(err) == 1
    assert told in err[0]


@pytest.mark.parametrize(
    ("name", "told"),
    [("none.wav", "no such file"), (".", "is a directory without recordings; give some")],
)
def test_a_clip_that_is_none_is_named_before_clips_are_counted(tmp_path, capsys, name, told):
    status, out, err = calibrate(capsys, tmp_path / name, "--risk", 0.05)
    assert (status, out, len(err)) == (1, "", 1)
    assert err[0].startswith(f"streamer: {tmp_path / name}: {told}")


def test_the_same_clip_twice_is_one_clip(clips, capsys):
    status, _, err = calibrate(capsys, *[clips[0]] * 60, "--risk", 0.02)
    assert status == 1
    assert err[0].startswith("streamer: 1 clips cannot certify")


def test_bad_and_silent_clips_are_left_out_and_told(clips, edge, tmp_path, capsys):
    (tmp_path / "text.wav").write_text("words")
    soundfile.write(tmp_path / "silence.wav", speech.recording(0) * 0, 16_000)
    bad = [tmp_path / "text.wav", tmp_path / "silence.wav"]
    status, out, err = calibrate(capsys, *bad, *clips[:3], "--risk", 0.5, "--edge", edge, "--json")
    assert status == 1, "a file failed"
    assert [row["num_clips"] for row in json.loads(out)["presets"]] == [3, 3]
    assert "text.wav" in err[0]
    assert err[1] == "streamer: 1 of 5 clips hold no speech and were left out"
    assert err[2:] == [
        "streamer: too few clips to choose a signal: the gate looks at entropy; give more, or --signal"
    ]
    status, out, err = calibrate(capsys, tmp_path / "silence.wav", "--risk", 0.9, "--edge", edge)
    assert (status, out) == (1, "")
    assert "0 clips with speech cannot certify a risk of 0.9: 1 are needed" in err[-1]


def test_every_folder_keeps_the_promise_by_itself(clips, edge, tmp_path, capsys):
    for name, files in (("a", clips[:2]), ("b", clips[2:4])):
        (tmp_path / name).mkdir()
        for file in files:
            shutil.copy(file, tmp_path / name)
    files = sorted(tmp_path.glob("[ab]/*.wav"))
    status, out, err = calibrate(
        capsys, *files, "--risk", 0.5, "--edge", edge, "--by-folder", "--json"
    )
    assert status == 0
    assert err == [
        "streamer: 4 clips are too few for half of --risk (0.25): preset quality keeps a risk of 0.34; give more, or --quality-risk",
        "streamer: too few clips to choose a signal: the gate looks at entropy; give more, or --signal",
    ]
    assert (
        json.loads(out)["presets"][0]["num_groups"]
        == read_card(edge).promises["fluent"].num_groups
        == 2
    )
    before = (edge / "streamer.json").read_bytes()
    status, out, err = calibrate(capsys, *files, "--risk", 0.3, "--edge", edge, "--by-folder")
    assert (status, out) == (1, "")
    assert f"2 clips of {tmp_path / 'a'} cannot certify a risk of 0.3: 3 are needed" in err[0]
    assert (edge / "streamer.json").read_bytes() == before


def test_models_shows_the_promise(capsys):
    """The shipped pair is calibrated, and says for what."""
    assert main(["models", "--json"]) == 0
    for row in json.loads(capsys.readouterr().out)["models"][:2]:
        for preset in row["presets"].values():
            assert preset["promise"]["num_clips"] >= 100
            assert 0 < preset["promise"]["risk"] <= 0.05
    assert main(["models"]) == 0
    assert "risk 0.0" in capsys.readouterr().out
