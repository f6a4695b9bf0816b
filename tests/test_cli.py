"""The command line as a person and a script meet it: real processes, exit statuses, clean
stdout."""

import argparse
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import soundfile

from streamer.cli import build_parser, main
from streamer.commands.describe import clock
from streamer.config import Config
from streamer.contradictions import check_given

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8", "COLUMNS": "100"}


def streamer(*args, stdin=None):
    command = [sys.executable, "-m", "streamer", *map(str, args)]
    done = subprocess.run(
        command, capture_output=True, env=ENVIRONMENT, input=stdin, timeout=120, check=False
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture(scope="module")
def models(tiny_pair):
    return ["--edge", tiny_pair[0], "--cloud", tiny_pair[1]]


def test_help_answers_at_once():
    started = time.perf_counter()
    status, out, _ = streamer("--help")
    assert status == 0
    assert "describe" in out
    # half a second on an idle machine; CI's may be busy
    assert time.perf_counter() - started < 2.0


def test_json_is_clean_and_one_object_per_file(models, samples):
    status, out, err = streamer("describe", *samples[:2], "--json", *models)
    assert (status, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["file"] for row in rows] == [str(file) for file in samples[:2]]
    assert all(row["stop_reason"] in ("sentence", "eos", "loop", "max_tokens") for row in rows)


def test_quiet_prints_the_sentence_alone(models, samples):
    status, out, err = streamer("describe", samples[0], "--quiet", "--mode", "edge", *models)
    assert (status, err) == (0, "")
    _, rows, _ = streamer("describe", samples[0], "--json", "--mode", "edge", *models)
    assert out == json.loads(rows)["text"] + "\n"


def test_bad_files_are_told_and_the_others_described(models, samples, tmp_path):
    (tmp_path / "text.wav").write_text("these are words")
    (tmp_path / "empty.wav").touch()
    whole = samples[0].read_bytes()
    (tmp_path / "cut.wav").write_bytes(whole[: len(whole) // 2])
    soundfile.write(tmp_path / "nan.wav", np.full(20_000, np.nan), 16_000, subtype="FLOAT")
    soundfile.write(tmp_path / "short.wav", np.zeros(160), 16_000)
    names = ["missing.wav", ".", "text.wav", "empty.wav", "nan.wav", "cut.wav", "short.wav"]
    files = [tmp_path / name for name in names]
    status, out, err = streamer("describe", *files, samples[1], "--json", *models)
    assert status == 1
    rows = {row["file"]: row for row in map(json.loads, out.splitlines())}
    assert set(rows) == {str(tmp_path / "cut.wav"), str(tmp_path / "short.wav"), str(samples[1])}
    assert (rows[str(files[6])]["stop_reason"], rows[str(files[6])]["text"]) == ("no_speech", "")
    lines = err.splitlines()
    assert len(lines) == 6, err
    for file, line in zip(files[:6], lines, strict=True):
        assert str(file) in line, "names the file"
        assert "Traceback" not in line


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--cloud-key k", "--cloud-key is for a verifier elsewhere"),
        ("--mode edge --cloud-audio lazy", "--cloud-audio is for a verifier elsewhere"),
        ("--cloud ws://127.0.0.1:9 --cloud-ca chain.pem", "--cloud-ca is for wss://"),
        ("--log-text", "--log-text is given without --log FILE"),
    ],
)
def test_options_that_cannot_both_be_meant_are_told(options, told, samples, capsys):
    """One line, before any model is loaded, for both commands that take them."""
    commands = [["describe", str(samples[0]), *options.split()], ["serve", *options.split()]]
    for command in commands[: 1 if options.startswith("--log") else 2]:
        assert main(command) == 2
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
        assert told in said.err


def test_a_pipeline_may_be_overruled(tmp_path):
    """What the command line does not say is no contradiction: a pipeline's verifier is left alone
    in mode edge."""
    check_given({"mode": "edge"}, Config(mode="edge", cloud="ws://127.0.0.1:9"))
    check_given({"cloud_key": "k"}, Config(cloud="ws://127.0.0.1:9", cloud_key="k"))


def test_names_stand_before_the_sentences(models, samples, tmp_path):
    soundfile.write(tmp_path / "short.wav", np.zeros(160), 16_000)
    files = [samples[0], tmp_path / "short.wav", samples[1]]
    status, out, _ = streamer("describe", *files, "--names", "--mode", "edge", *models)
    _, plain, _ = streamer("describe", *files, "--mode", "edge", *models)
    assert status == 0
    assert out.splitlines() == [
        f"{file}: {text}".rstrip() for file, text in zip(files, plain.splitlines(), strict=True)
    ]


def test_speech_too_short_is_no_error(models, tmp_path):
    soundfile.write(tmp_path / "short.wav", np.zeros(160), 16_000)
    status, out, _ = streamer("describe", tmp_path / "short.wav", "--json", *models)
    assert status == 0
    assert json.loads(out)["stop_reason"] == "no_speech"


def test_without_a_command_the_commands_are_listed():
    status, out, err = streamer()
    assert (status, out) == (2, "")
    assert re.search(r"^    describe +describe recordings$", err, re.M)


def test_a_turn_shorter_than_any_that_the_models_know_is_told(models, samples, tmp_path):
    audio, rate = soundfile.read(samples[0])
    for seconds in (1.4, 1.6):
        soundfile.write(tmp_path / f"{seconds}.wav", audio[: int(seconds * rate)], rate)
    status, out, err = streamer(
        "describe", *tmp_path.glob("*.wav"), "--json", "--mode", "edge", *models
    )
    assert status == 0
    found = {row["file"][-7:-4]: row["warning"] for row in map(json.loads, out.splitlines())}
    assert re.match(r"only 1.4 s long: ", found["1.4"])
    assert found["1.6"] is None
    assert re.fullmatch(r"streamer: \S+1.4.wav: only 1.4 s long: .+\n", err)


def long_of(file, samples, seconds):
    audio, rate = soundfile.read(samples[0])
    soundfile.write(file, np.resize(audio, seconds * rate), rate)
    return file


def test_parts_are_lines_that_say_when_they_begin(models, samples, tmp_path):
    long = long_of(tmp_path / "long.wav", samples, 70)
    status, out, err = streamer("describe", samples[0], long, "--mode", "edge", *models)
    assert status == 0
    assert [line[:7] for line in out.splitlines()[1:]] == ["[0:00] ", "[1:00] "]
    assert "[" not in out.splitlines()[0]
    assert re.search(r"long.wav: 70.0 s, 2 parts, \d+ tokens, ", err)
    _, quiet, _ = streamer("describe", long, "--mode", "edge", "--quiet", *models)
    assert [line[7:] for line in out.splitlines()[1:]] == quiet.splitlines()
    _, named, _ = streamer("describe", long, "--mode", "edge", "--names", *models)
    assert [
        line for line in named.splitlines() if line.startswith(f"{long}: [")
    ] == named.splitlines()
    assert len(named.splitlines()) == 2


def test_ctrl_c_keeps_the_parts_that_are_done_and_says_where_it_was(models, samples, tmp_path):
    long = long_of(tmp_path / "long.wav", samples, 1800)
    command = [sys.executable, "-m", "streamer", "describe", long, "--mode", "edge", *models]
    process = subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        # a shell's background jobs ignore it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    # it is whole as the next one begins
    assert process.stdout.readline().startswith(b"[0:00] ")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out.endswith(b"\n"), "the line in hand is closed"
    assert re.fullmatch(
        r"streamer: \S+long.wav: interrupted after \d+:\d\d of 30:00; what is said so far stands\n",
        err.decode(),
    )


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0:00"), (65.9, "1:05"), (3599, "59:59"), (36_610, "10:10:10")]
)
def test_clock(seconds, shown):
    assert clock(seconds) == shown


def test_stdin(models, samples):
    status, out, _ = streamer(
        "describe", "-", "--json", "--mode", "edge", *models, stdin=samples[2].read_bytes()
    )
    assert status == 0
    _, wanted, _ = streamer("describe", samples[2], "--json", "--mode", "edge", *models)
    assert json.loads(out)["ids"] == json.loads(wanted)["ids"]


@pytest.mark.parametrize(
    "args",
    [
        ("describe",),
        ("describe", "x.wav", "--mode", "fast"),
        ("describe", "x.wav", "--k", "0"),
        ("dance",),
        ("describe", "x.wav", "--temperature", "-1"),
        ("describe", "x.wav", "--cloud", "none", "--mode", "exact"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(args):
    status, out, err = streamer(*args)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1, err


def test_a_model_that_cannot_be_loaded_is_one_line(samples, tmp_path):
    status, out, err = streamer("describe", samples[0], "--edge", tmp_path)
    assert (status, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert "config.json" in err


def test_logs_hold_numbers_and_no_text(models, samples, tmp_path):
    log = tmp_path / "log.jsonl"
    _, out, _ = streamer("describe", samples[0], "--json", "--log", log, *models)
    rows = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert [row["event"] for row in rows] == ["describe.start", "describe.done"]
    assert rows[0]["stream"] == rows[1]["stream"]
    assert rows[1]["n_tokens"] == json.loads(out)["n_tokens"]
    assert json.loads(out)["text"] not in log.read_text("utf-8")
    streamer("describe", samples[0], "--json", "--log", log, "--log-text", *models)
    assert json.loads(out)["text"] in log.read_text("utf-8")


def test_models_lists_the_embedded_pair():
    status, out, _ = streamer("models", "--json")
    assert status == 0
    rows = json.loads(out)["models"]
    assert [row["role"] for row in rows[:2]] == ["edge", "cloud"]
    assert len(rows[0]["levels"]) == 7
    assert all(
        rows[0]["num_levels"][name] == len(names) for name, names in rows[0]["levels"].items()
    )
    status, out, _ = streamer("models")
    assert status == 0
    assert "embedded" in out


def test_on_a_terminal_unverified_text_is_dimmed(models, samples):
    """A real pseudo-terminal: the sentence grows piece by piece, unverified pieces dimmed."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "streamer", "describe", samples[0], "--mode", "edge", *models]
    process = subprocess.Popen(
        list(map(str, command)), stdout=follower, stderr=follower, env=ENVIRONMENT
    )
    os.close(follower)
    shown = b""
    try:
        while piece := os.read(leader, 4096):
            shown += piece
    except OSError:  # the terminal's other end is closed: the process has ended
        pass
    assert process.wait(timeout=60) == 0
    text = shown.decode()
    assert text.count("\x1b[2m") >= 2
    assert re.search(r"first text after \d+ ms", text)


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
    assert [json.loads(line)["file"] for line in out.splitlines()] == [str(samples[0])]
    assert err.count("\n") == 1
    assert "bad.wav: RuntimeError: the decoder fell over; this is a defect" in err


@pytest.mark.parametrize(
    "name",
    [b"two  blanks.wav", "中文 名.wav".encode(), b"bell\x07\x1b[31m.wav", b"not-utf8-\xff.wav"],
)
def test_any_file_name_is_told_in_one_plain_line(models, samples, tmp_path, name):
    file = os.path.join(os.fsencode(tmp_path), name)
    with open(file, "wb") as copy:
        copy.write(samples[0].read_bytes())
    command = [
        sys.executable,
        "-m",
        "streamer",
        "describe",
        file,
        os.fsencode(tmp_path) + b"/no-" + name,
        *map(str, models),
    ]
    done = subprocess.run(
        [*command, "--json"], capture_output=True, env=ENVIRONMENT, timeout=120, check=False
    )
    assert done.returncode == 1
    assert os.fsencode(json.loads(done.stdout)["file"]) == file
    err = done.stderr.decode()
    assert err.count("\n") == 1
    assert err[:-1].isprintable()
    if name.isascii():
        assert name.decode("ascii", "replace").replace("\x07\x1b", "\\x07\\x1b") in err
    done = subprocess.run(command, capture_output=True, env=ENVIRONMENT, timeout=120, check=False)
    assert done.returncode == 1
    assert all(line.isprintable() for line in done.stderr.decode().split("\n"))


@pytest.mark.parametrize(
    "command", ["describe x.wav", "serve", "verifier", "calibrate x.wav --risk .1", "models"]
)
def test_an_unknown_option_names_its_command_s_help(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--no-such"])
    assert ended.value.code == 2
    told = (
        f"streamer: unrecognized arguments: --no-such; see streamer {command.split()[0]} --help\n"
    )
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("command", ["describe", "serve", "verifier", "calibrate", "models"])
def test_every_option_s_help_names_its_default(command):
    """What happens without it; and the number or name there is the one that counts."""
    (commands,) = (
        action
        for action in build_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    for action in commands.choices[command]._actions:
        if not action.option_strings or action.nargs == 0 or action.required:
            continue
        told = action.help.replace("\n", " ")
        assert "default" in told, action.option_strings
        counts = (
            getattr(Config(), action.dest)
            if action.default is argparse.SUPPRESS
            else action.default
        )
        if counts is not None and not isinstance(counts, bool):
            shown = f"{counts:g}" if isinstance(counts, int | float) else str(counts)
            assert re.search(
                rf"\b{re.escape(shown)}[ (,]*default|default {re.escape(shown)}\b", told
            ), told


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
