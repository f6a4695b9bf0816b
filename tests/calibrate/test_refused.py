"""`streamer calibrate` refuses or leaves out: one line each."""

import json

import soundfile
import speech


def test_bad_and_silent_clips_are_left_out_with_a_line(clips, edge, tmp_path, calibrate):
    (tmp_path / "text.wav").write_text("words")
    soundfile.write(tmp_path / "silence.wav", speech.recording(0) * 0, 16_000)
    bad = [tmp_path / "text.wav", tmp_path / "silence.wav"]
    status, out, err = calibrate(*bad, *clips[:3], "--risk", 0.5, "--edge", edge, "--json")
    assert status == 1, "a file failed"
    assert [row["num_clips"] for row in json.loads(out)["presets"]] == [3, 3]
    assert "text.wav" in err[0]
    assert err[1:] == ["streamer: 1 of 5 clips hold no speech and were left out"]
    status, out, err = calibrate(tmp_path / "silence.wav", "--risk", 0.9, "--edge", edge)
    assert (status, out) == (1, "")
    assert "0 clips with speech cannot certify a risk of 0.9: 1 are needed" in err[-1]
