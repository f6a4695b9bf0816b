"""Mistyped names and unusable files: cause and way out, at once."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest
import soundfile

from streamer.cli import main


def told(*words: object, **more: object) -> tuple[int, str, str]:
    """Exit status, stdout, stderr of a process of its own."""
    command = [sys.executable, "-m", "streamer", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **more)
    return done.returncode, done.stdout, done.stderr


def test_a_missing_file_is_told_before_a_model_is_loaded(capsys) -> None:
    """The model is no model: what it would be refused for is never reached."""
    assert main(["describe", "a.wav", "b.wav", "--json", "--edge", os.sep]) == 1
    out, err = capsys.readouterr()
    assert [json.loads(line) for line in out.splitlines()] == [
        {"file": name, "error": "no such file"} for name in ("a.wav", "b.wav")
    ]
    assert err == "streamer: a.wav: no such file\nstreamer: b.wav: no such file\n"


@pytest.mark.parametrize("more", [(), ("here.wav",)])
def test_a_file_that_looks_like_an_option_is_told_how_to_be_written(
    more, tmp_path, monkeypatch, capsys
) -> None:
    (tmp_path / "-clip.wav").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["describe", *more, "-clip.wav"])
    assert ended.value.code == 2
    assert (
        "; ./-clip.wav would be the file; see streamer describe --help" in capsys.readouterr().err
    )


def test_silence_is_told_and_a_script_is_not_disturbed(tmp_path, capsys) -> None:
    silence = tmp_path / "silence.wav"
    soundfile.write(silence, np.zeros(32_000), 16_000)
    assert main(["describe", str(silence), "--mode", "edge"]) == 0
    out, err = capsys.readouterr()
    assert out == "\n"
    assert err == f"streamer: {silence}: no speech was heard, so there is no sentence\n"
    for option in ("--json", "--quiet"):
        assert main(["describe", str(silence), "--mode", "edge", option]) == 0
        assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", ["serve", "verifier"])
def test_a_port_that_is_taken_is_told_before_a_model_is_loaded(command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, out, err = told(command, "--port", port)
    assert (status, out) == (1, "")
    assert err == (
        f"streamer: cannot listen on 127.0.0.1:{port} (Address already in use); "
        "choose another --port\n"
    )


@pytest.mark.parametrize("channels", [1, 2])
def test_a_sample_that_is_no_number_is_told_with_its_place(channels, tmp_path, capsys) -> None:
    audio = np.zeros((20_000, channels))
    audio[8_000, -1] = np.nan
    soundfile.write(tmp_path / "nan.wav", audio, 16_000, subtype="FLOAT")
    assert main(["describe", str(tmp_path / "nan.wav"), "--mode", "edge"]) == 1
    where = " in channel 1" if channels == 2 else ""
    err = capsys.readouterr().err
    assert err.endswith(f"bad audio at 0.500 s: sample value nan{where}; give finite ones\n")
