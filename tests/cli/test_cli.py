"""The command line as a person and a script meet it: real processes, exit statuses, clean
stdout."""

import json
import os
import re
import resource
import subprocess
import sys

import numpy as np
import pytest
import soundfile
from command_line import ENVIRONMENT, streamer

from streamer.cli import main
from streamer.commands.process import loading


def test_help_answers_at_once():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    status, out, _ = streamer("--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert status == 0
    assert "describe" in out
    # of the processor's time, a third of a second: a busy machine makes no difference
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0


def test_json_is_clean_and_one_object_per_file(here, models, samples):
    status, out, err = here("describe", *samples[:2], "--json", *models)
    assert (status, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["file"] for row in rows] == [str(file) for file in samples[:2]]
    assert all(row["stop_reason"] in ("sentence", "eos", "loop", "max_tokens") for row in rows)


def test_channels_apart_are_speakers_of_their_own(here, models, samples, tmp_path):
    """Each says what it says alone, with its number; a bad file is told once."""
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


def test_quiet_prints_the_sentence_alone(here, models, samples):
    status, out, err = here("describe", samples[0], "--quiet", "--mode", "edge", *models)
    assert (status, err) == (0, "")
    _, rows, _ = here("describe", samples[0], "--json", "--mode", "edge", *models)
    assert out == json.loads(rows)["text"] + "\n"


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
    _, asked, _ = here("describe", files[0], "--names", "--mode", "edge", *models)
    assert asked.splitlines() == named[:1]


def test_speech_too_short_is_no_error(here, models, tmp_path):
    soundfile.write(tmp_path / "short.wav", np.zeros(160), 16_000)
    status, out, _ = here("describe", tmp_path / "short.wav", "--json", *models)
    assert status == 0
    assert json.loads(out)["stop_reason"] == "no_speech"


def test_without_a_command_the_commands_are_listed():
    status, out, err = streamer()
    assert (status, out) == (2, "")
    assert re.search(r"^    describe +describe recordings$", err, re.M)


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


def test_stdin(here, models, samples):
    status, out, _ = streamer(
        "describe", "-", "--json", "--mode", "edge", *models, stdin=samples[2].read_bytes()
    )
    assert status == 0
    _, wanted, _ = here("describe", samples[2], "--json", "--mode", "edge", *models)
    assert json.loads(out)["ids"] == json.loads(wanted)["ids"]


def test_a_model_that_cannot_be_loaded_is_one_line(here, samples, tmp_path):
    status, out, err = here("describe", samples[0], "--edge", tmp_path)
    assert (status, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert "config.json" in err


def test_logs_hold_numbers_and_no_text(here, models, samples, tmp_path):
    log = tmp_path / "log.jsonl"
    _, out, _ = here("describe", samples[0], "--json", "--log", log, *models)
    rows = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert [row["event"] for row in rows] == ["describe.start", "describe.done"]
    assert rows[0]["stream"] == rows[1]["stream"]
    assert rows[1]["n_tokens"] == json.loads(out)["n_tokens"]
    assert json.loads(out)["text"] not in log.read_text("utf-8")
    here("describe", samples[0], "--json", "--log", log, "--log-text", *models)
    assert json.loads(out)["text"] in log.read_text("utf-8")


def test_models_lists_the_embedded_pair(here):
    status, out, _ = here("models", "--json")
    assert status == 0
    rows = json.loads(out)["models"]
    assert [row["role"] for row in rows[:2]] == ["edge", "cloud"]
    assert len(rows[0]["levels"]) == 7
    assert all(
        rows[0]["num_levels"][name] == len(names) for name, names in rows[0]["levels"].items()
    )
    status, out, _ = here("models")
    assert status == 0
    assert "embedded" in out


def test_directories_and_jobs(here, models, samples, tmp_path):
    """What is in a directory and below, by name; two at once say what one at a time says."""
    (tmp_path / "b" / ".hidden").mkdir(parents=True)
    for name, file in zip(("b/2.WAV", "1.wav", "b/.hidden/no.wav"), samples, strict=False):
        (tmp_path / name).write_bytes(file.read_bytes())
    (tmp_path / "notes.txt").write_text("no recording")
    status, out, err = here("describe", tmp_path, "--json", "--mode", "edge", *models)
    assert (status, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["file"] for row in rows] == [f"{tmp_path}/1.wav", f"{tmp_path}/b/2.WAV"]
    options = ("--jobs", "2", "--mode", "edge", *models)
    status, out, err = here("describe", tmp_path, tmp_path / "none.wav", "--json", *options)
    assert (status, err) == (1, f"streamer: {tmp_path}/none.wav: no such file\n")
    found = {row["file"]: row.get("ids") for row in map(json.loads, out.splitlines())}
    assert found == {row["file"]: row["ids"] for row in rows} | {f"{tmp_path}/none.wav": None}


def test_numbers_are_shown_when_asked_for_and_say_who_checked(models, samples, here):
    args = ("describe", samples[0], "--mode", "exact", *models)
    status, _, err = here(*args)
    assert (status, err) == (0, "")
    _, _, told = here(*args, "-v")
    assert re.search(r"\d+ checked by the larger model in \d+ calls \(\d+ kept\)", told)
    assert "uploaded" not in told


def test_samples_and_clients_come_with_the_package(tmp_path, capsys):
    assert main(["samples", "--copy", str(tmp_path / "new" / "here")]) == 0
    copies = [
        tmp_path / "new" / "here" / line.rpartition("/")[2]
        for line in capsys.readouterr().out.split()
    ]
    assert main(["samples"]) == 0
    files = capsys.readouterr().out.split()
    assert [copy.name for copy in copies[-2:]] == ["file.py", "mic.py"]
    for copy, file in zip(copies, files, strict=True):
        with open(file, "rb") as own:
            assert copy.read_bytes() == own.read()
    (tmp_path / "file").touch()
    assert main(["samples", "--copy", str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err.endswith(
        "cannot be written (File exists); choose another with --copy\n"
    )


def test_warm_says_where_the_kernels_are(capsys):
    assert main(["warm"]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("loading the embedded pair ...\n")
    assert os.path.isdir(re.match(r"kernels are kept in (.+) \(", out)[1])


@pytest.mark.parametrize("is_kept", [True, False])
def test_compiling_is_told_once_with_the_way_out(is_kept, tmp_path, monkeypatch, capsys):
    """A real compilation: of a function whose code can be kept on disk, and of one that cannot."""
    (tmp_path / "kernel.py").write_text("def add(x):\n    return x + 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import kernel
    import numba

    add = numba.njit(cache=is_kept)(kernel.add)
    with loading("edge embedded"):
        assert (add(1), add(1.5)) == (2, 2.5)
    monkeypatch.delitem(sys.modules, "kernel")
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith("streamer: compiling kernels for this processor, about 30 s of CPU time")
    assert ("`streamer warm`" in told, "NUMBA_CACHE_DIR" in told) == (is_kept, not is_kept)


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
    """Of a recording and, with no- before it, of one that is not there."""
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
    rows = map(json.loads, done.stdout.splitlines())
    assert [os.fsencode(row["file"]) for row in rows] == files
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
