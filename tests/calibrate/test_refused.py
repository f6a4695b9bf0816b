"""`streamer calibrate` refuses or leaves out: one line each."""

import json
import shutil

import soundfile
import speech

from streamer.model.checkpoint.card import read_card

FEW = "streamer: too few clips to choose a signal: the gate looks at entropy; more clips choose one"


def test_bad_and_silent_clips_are_left_out_with_a_line(clips, edge, tmp_path, calibrate):
    (tmp_path / "text.wav").write_text("words")
    soundfile.write(tmp_path / "silence.wav", speech.recording(0) * 0, 16_000)
    bad = [tmp_path / "text.wav", tmp_path / "silence.wav"]
    status, out, err = calibrate(*bad, *clips[:3], "--risk", 0.5, "--edge", edge, "--json")
    assert status == 1, "a file failed"
    assert [row["num_clips"] for row in json.loads(out)["presets"]] == [3, 3]
    assert "text.wav" in err[0]
    assert err[1:] == ["streamer: 1 of 5 clips hold no speech and were left out", FEW]
    status, out, err = calibrate(tmp_path / "silence.wav", "--risk", 0.9, "--edge", edge)
    assert (status, out) == (1, "")
    assert "0 clips with speech cannot certify a risk of 0.9: 1 are needed" in err[-1]


def test_every_folder_keeps_the_promise_by_itself(clips, edge, tmp_path, calibrate):
    for name, files in (("a", clips[:2]), ("b", clips[2:4])):
        (tmp_path / name).mkdir()
        for file in files:
            shutil.copy(file, tmp_path / name)
    files = sorted(tmp_path.glob("[ab]/*.wav"))
    words = ("--edge", edge, "--by-folder")
    status, out, err = calibrate(*files, "--risk", 0.5, *words, "--json")
    assert status == 0
    half = "4 clips are too few for half of --risk (0.25): preset quality keeps a risk of 0.34"
    assert err == [FEW, f"streamer: {half}; give more"]
    assert json.loads(out)["presets"][0]["num_groups"] == 2
    assert read_card(edge).promises["fluent"].num_groups == 2
    before = (edge / "streamer.json").read_bytes()
    status, out, err = calibrate(*files, "--risk", 0.3, *words)
    assert (status, out) == (1, "")
    assert f"2 clips of {tmp_path / 'a'} cannot certify a risk of 0.3: 3 are needed" in err[0]
    assert (edge / "streamer.json").read_bytes() == before
