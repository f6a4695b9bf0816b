"""Broken files, models and streams on the command line: one line each."""

import json
import os
import re
import subprocess
import sys

import msgspec
import numpy as np
import pytest
import soundfile
from processes import ENVIRONMENT


def test_bad_files_are_told_and_the_others_described(here, models, samples, tmp_path):
    (tmp_path / "text.wav").write_text("these are words")
    (tmp_path / "empty.wav").touch()
    whole = samples[0].read_bytes()
    (tmp_path / "cut.wav").write_bytes(whole[: len(whole) // 2])
    soundfile.write(tmp_path / "nan.wav", np.full(20_000, np.nan), 16_000, subtype="FLOAT")
    soundfile.write(tmp_path / "short.wav", np.zeros(160), 16_000)
    (tmp_path / "folder").mkdir()
    names = ["missing.wav", "folder", "text.wav", "empty.wav", "nan.wav", "cut.wav", "short.wav"]
    files = [tmp_path / name for name in names]
    status, out, err = here("describe", *files, samples[1], "--json", *models)
    assert status == 1
    rows = {row["file"]: row for row in map(json.loads, out.splitlines())}
    assert list(rows) == [str(file) for file in (*files, samples[1])]
    for file in files[:5]:
        assert set(rows[str(file)]) == {"file", "error"}
    assert rows[str(files[0])]["error"] == "no such file"
    assert (rows[str(files[6])]["stop_reason"], rows[str(files[6])]["text"]) == ("no_speech", "")
    lines = err.splitlines()
    assert len(lines) == 6, err
    for file, line in zip(files[:6], lines, strict=True):
        assert str(file) in line, "names the file"
        assert "Traceback" not in line


def test_a_turn_shorter_than_any_that_the_models_know_is_told(here, models, samples, tmp_path):
    audio, rate = soundfile.read(samples[0])
    for seconds in (1.4, 1.6):
        soundfile.write(tmp_path / f"{seconds}.wav", audio[: int(seconds * rate)], rate)
    status, out, err = here(
        "describe", *tmp_path.glob("*.wav"), "--json", "--mode", "edge", *models
    )
    assert status == 0
    found = {row["file"][-7:-4]: row["warning"] for row in map(json.loads, out.splitlines())}
    assert re.match(r"only 1.4 s long: ", found["1.4"])
    assert found["1.6"] is None
    assert re.fullmatch(r"streamer: \S+1.4.wav: only 1.4 s long: .+\n", err)


def test_one_files_failure_never_ends_the_run(models, samples, monkeypatch, capsys):
    """Whatever one file does to the program, the others are described and the line says it is a
    defect."""
    import streamer.describer as describer
    from streamer.cli import main

    real = describer.describe_recording

    async def hostile(parts, source, *more):
        if "bad" in str(source):
            raise RuntimeError("the decoder\nfell over")
        return await real(parts, source, *more)

    monkeypatch.setattr(describer, "describe_recording", hostile)
    status = main(["describe", "bad.wav", str(samples[0]), "--json", *map(str, models)])
    out, err = capsys.readouterr()
    assert status == 1
    bad, good = map(json.loads, out.splitlines())
    assert (bad["file"], set(bad)) == ("bad.wav", {"file", "error"})
    assert good["file"] == str(samples[0])
    assert err.count("\n") == 1
    assert "bad.wav: RuntimeError: the decoder fell over; this is a defect" in err


NAMES = [b"two  blanks.wav", "中文 名.wav".encode(), b"bell\x07\x1b[31m.wav", b"not-utf8-\xff.wav"]


def test_any_file_name_is_told_in_one_plain_line(models, samples, tmp_path):
    """A recording and, with no- before it, a missing one."""
    files = []
    for name in NAMES:
        file = os.path.join(os.fsencode(tmp_path), name)
        with open(file, "wb") as copy:
            copy.write(samples[0].read_bytes())
        files += [file, os.fsencode(tmp_path) + b"/no-" + name]
    command = [sys.executable, "-m", "streamer", "describe", *files, *map(str, models)]
    done = subprocess.run(
        [*command, "--json"], capture_output=True, env=ENVIRONMENT, timeout=120, check=False
    )
    assert done.returncode == 1
    rows = map(msgspec.json.decode, done.stdout.splitlines())  # strict
    wanted = [os.fsdecode(file).encode(errors="backslashreplace").decode() for file in files]
    assert [row["file"] for row in rows] == wanted
    told = done.stderr.decode().splitlines()
    assert len(told) == len(NAMES)
    for name, line in zip(NAMES, told, strict=True):
        assert line.isprintable()
        if name.isascii():
            assert name.decode("ascii", "replace").replace("\x07\x1b", "\\x07\\x1b") in line
    done = subprocess.run(command, capture_output=True, env=ENVIRONMENT, timeout=120, check=False)
    assert done.returncode == 1
    assert all(line.isprintable() for line in done.stderr.decode().split("\n"))


@pytest.mark.parametrize(
    "command", ["describe a b", "describe a b --json", "describe a --quiet", "models"]
)
def test_a_stdout_that_cannot_be_written_is_told_as_that(models, samples, command):
    """Not as a defect, not as the recording's fault, and once: nothing after it could be written
    either."""
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    words = [
        str(samples["ab".index(word)]) if word in ("a", "b") else word for word in command.split()
    ]
    given = map(str, models) if words[0] == "describe" else ()
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "streamer", *words, *given],
            stdout=full,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            timeout=120,
            check=False,
            text=True,
        )
    assert (done.returncode, done.stderr) == (
        1,
        "streamer: stdout cannot be written (No space left on device); make room, or write elsewhere\n",
    )
