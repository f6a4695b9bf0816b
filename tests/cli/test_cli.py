"""The command line as a person and a script meet it: real processes, exit statuses, clean
stdout."""

import json
import os

import numpy as np
import soundfile
from processes import streamer

from streamer.cli import main


def test_json_is_clean_and_one_object_per_file(here, models, samples):
    status, out, err = here("describe", *samples[:2], "--json", *models)
    assert (status, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["file"] for row in rows] == [str(file) for file in samples[:2]]
    assert all(row["stop_reason"] in ("sentence", "eos", "loop", "max_tokens") for row in rows)


def test_channels_apart_are_speakers_of_their_own(here, models, samples, tmp_path):
    """Each says what it says alone, with its number; a bad file is reported once."""
    sounds = [soundfile.read(file)[0] for file in samples[:2]]
    n = min(map(len, sounds))
    one, two = (sound[:n] for sound in sounds)
    soundfile.write(tmp_path / "both.wav", np.stack([one, two], 1), 16_000, subtype="PCM_16")
    for name, sound in (("one", one), ("two", two)):
        soundfile.write(tmp_path / f"{name}.wav", sound, 16_000, subtype="PCM_16")
    files = [tmp_path / name for name in ("both.wav", "one.wav", "two.wav", "none.wav")]
    status, out, _ = here("describe", *files, "--channels", "apart", "--json", *models)
    rows = [json.loads(line) for line in out.splitlines()]
    assert (status, len(rows)) == (1, 5)
    assert [row.get("channel") for row in rows] == [0, 1, 0, 0, None]
    assert [row["text"] for row in rows[:2]] == [row["text"] for row in rows[2:4]]
    assert "channel" not in rows[4]
    assert rows[4]["error"] == "no such file"
    _, out, _ = here("describe", files[0], "--channels", "apart", *models)
    assert [line.partition(": ")[0] for line in out.splitlines()] == [
        f"{files[0]}, channel {channel}" for channel in (0, 1)
    ]


def test_names_stand_before_the_sentences(here, models, samples, tmp_path):
    soundfile.write(tmp_path / "short.wav", np.zeros(160), 16_000)
    files = [samples[0], tmp_path / "short.wav", samples[1]]
    status, out, _ = here("describe", *files, "--mode", "edge", *models)
    _, plain, _ = here("describe", *files, "--quiet", "--mode", "edge", *models)
    assert status == 0
    named = [
        f"{file}: {text}".rstrip() for file, text in zip(files, plain.splitlines(), strict=True)
    ]
    assert out.splitlines() == named


def test_stdin(here, models, samples):
    status, out, _ = streamer(
        "describe", "-", "--json", "--mode", "edge", *models, stdin=samples[2].read_bytes()
    )
    assert status == 0
    _, wanted, _ = here("describe", samples[2], "--json", "--mode", "edge", *models)
    assert json.loads(out)["ids"] == json.loads(wanted)["ids"]


def test_directories_and_jobs(here, models, samples, tmp_path):
    """A directory is searched for recordings, by name; two jobs give the results of one."""
    (tmp_path / "b" / ".hidden").mkdir(parents=True)
    for name, file in zip(("b/2.WAV", "1.wav", "b/.hidden/no.wav"), samples, strict=False):
        (tmp_path / name).write_bytes(file.read_bytes())
    (tmp_path / "notes.txt").write_text("no recording")
    os.mkfifo(tmp_path / "pipe.wav")
    os.symlink("/dev/zero", tmp_path / "zero.wav")
    status, out, err = here("describe", tmp_path, "--json", "--mode", "edge", *models)
    told = "is a pipe or a device, and passed over; name it by itself"
    names = (f"{tmp_path}/pipe.wav", f"{tmp_path}/zero.wav")
    assert (status, err) == (0, "".join(f"streamer: {name}: {told}\n" for name in names))
    for name in names:
        os.remove(name)
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["file"] for row in rows] == [f"{tmp_path}/1.wav", f"{tmp_path}/b/2.WAV"]
    options = ("--jobs", "2", "--mode", "edge", *models)
    status, out, err = here("describe", tmp_path, tmp_path / "none.wav", "--json", *options)
    assert (status, err) == (1, f"streamer: {tmp_path}/none.wav: no such file\n")
    found = {row["file"]: row.get("ids") for row in map(json.loads, out.splitlines())}
    assert found == {row["file"]: row["ids"] for row in rows} | {f"{tmp_path}/none.wav": None}


def test_samples_and_clients_come_with_the_package(tmp_path, capsys):
    assert main(["samples", "--copy", str(tmp_path / "new" / "here")]) == 0
    copies = [
        tmp_path / "new" / "here" / line.rpartition("/")[2]
        for line in capsys.readouterr().out.split()
    ]
    assert main(["samples"]) == 0
    files = capsys.readouterr().out.split()
    assert copies[-1].name == "streamer_client.py"
    for copy, file in zip(copies, files, strict=True):
        with open(file, "rb") as own:
            assert copy.read_bytes() == own.read()
    (tmp_path / "file").touch()
    assert main(["samples", "--copy", str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err.endswith(
        "cannot be written (File exists); choose another with --copy\n"
    )
