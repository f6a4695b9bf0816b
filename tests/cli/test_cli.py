"""The command line as a person and a script meet it: real processes, exit statuses, clean
stdout."""

import argparse
import json
import os
import pty
import re
import resource
import signal
import subprocess
import sys

import numpy as np
import pytest
import soundfile
from places import ROOT

from streamer.cli import build_parser, main
from streamer.commands.options_page import page
from streamer.commands.process import loading
from streamer.commands.table import COMMANDS
from streamer.config import Config
from streamer.contradictions import check_given
from streamer.options import declared, flag_of, taken
from streamer.progress import clock

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


@pytest.fixture
def here(capsys):
    """Runs a command in this process: (status, stdout, stderr)."""

    def run(*args):
        try:
            status = main([*map(str, args)])
        except SystemExit as end:  # argparse's way
            status = end.code
        return status, *capsys.readouterr()

    return run


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


def test_channels_apart_want_a_file(capsys):
    assert main(["describe", "-", "--channels", "apart"]) == 2
    assert "give a file, not -" in capsys.readouterr().err


def test_a_pipeline_may_be_overruled(tmp_path):
    """What the command line does not say is no contradiction: a pipeline's verifier is left alone
    in mode edge."""
    check_given({"mode": "edge"}, Config(mode="edge", cloud="ws://127.0.0.1:9"))
    check_given({"cloud_key": "k"}, Config(cloud="ws://127.0.0.1:9", cloud_key="k"))


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


def long_of(file, samples, seconds):
    audio, rate = soundfile.read(samples[0])
    soundfile.write(file, np.resize(audio, seconds * rate), rate)
    return file


def test_parts_are_lines_that_say_when_they_begin(here, models, samples, tmp_path):
    long = long_of(tmp_path / "long.wav", samples, 70)
    status, out, err = here("describe", long, "-v", "--mode", "edge", *models)
    assert status == 0
    assert [line[:7] for line in out.splitlines()] == ["[0:00] ", "[1:00] "]
    assert re.fullmatch(r"  \S+long.wav: 70.0 s, 2 parts, \d+ tokens, 0% verified \[edge\]\n", err)
    _, quiet, _ = here("describe", long, "--mode", "edge", "--quiet", *models)
    assert [line[7:] for line in out.splitlines()] == quiet.splitlines()
    _, named, _ = here("describe", long, "--mode", "edge", "--names", *models)
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


def test_stdin(here, models, samples):
    status, out, _ = streamer(
        "describe", "-", "--json", "--mode", "edge", *models, stdin=samples[2].read_bytes()
    )
    assert status == 0
    _, wanted, _ = here("describe", samples[2], "--json", "--mode", "edge", *models)
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
def test_bad_usage_is_one_line_and_status_2(here, args):
    status, out, err = here(*args)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1, err


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


def on_a_terminal(*args, stdout=None, **environment):
    """(exit status, stdout where it is no terminal, what the terminal shows): stderr is a real
    pseudo-terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "streamer", *map(str, args)],
        stdout=stdout or follower,
        stderr=follower,
        env=ENVIRONMENT | {"TERM": "xterm"} | environment,
    )
    os.close(follower)
    shown = b""
    try:
        while piece := os.read(leader, 4096):
            shown += piece
    except OSError:  # the terminal's other end is closed: the process has ended
        pass
    out, _ = process.communicate(timeout=60)
    os.close(leader)
    return process.returncode, (out or b"").decode(), shown.decode()


def test_on_a_terminal_unverified_text_is_dimmed(models, samples):
    """The sentence grows piece by piece, unverified pieces dimmed. NO_COLOR is obeyed."""
    args = ("describe", samples[0], "-v", "--mode", "edge", *models)
    status, _, shown = on_a_terminal(*args)
    assert status == 0
    assert shown.count("\x1b[2m") >= 2
    assert re.search(r"first text after \d+ ms", shown)
    assert shown.startswith(f"loading edge {models[1]} ...")
    status, _, plain = on_a_terminal(*args, NO_COLOR="1")
    assert status == 0
    assert "\x1b[2m" not in plain
    assert plain.count("\n") == 2


@pytest.mark.parametrize("option", ["--mode=edge", "--quiet", "--json"])
def test_a_bar_on_the_terminal_leaves_stdout_alone(models, samples, tmp_path, option):
    """Rich sent what stdout should have got to stderr, so `> out.txt` and `| cmd` got nothing."""
    long = long_of(tmp_path / "long.wav", samples, 20)
    args = ("describe", long, option, "--mode", "edge", *models)
    status, out, shown = on_a_terminal(*args, stdout=subprocess.PIPE)
    assert status == 0
    assert out.count("\n") == 1
    assert len(out) > 2
    assert "\x1b" not in out
    assert re.search(r"describing .*0:\d\d of 0:20.*time left", shown)
    assert out.strip() not in shown


def test_a_terminal_gets_a_bar_and_whole_lines(here, models, samples, tmp_path):
    """Parts of a long recording: each line stands whole between the bar's frames."""
    long = long_of(tmp_path / "long.wav", samples, 70)
    status, _, shown = on_a_terminal("describe", long, "--mode", "edge", *models, NO_COLOR="1")
    _, plain, _ = here("describe", long, "--mode", "edge", *models)
    assert status == 0
    assert "describing" in shown
    seen = [line.rpartition("\r")[2] for line in shown.replace("\r\n", "\n").split("\n")]
    seen = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in seen]
    for line in plain.splitlines():
        assert line in seen


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


def test_a_pipeline_file_gives_options_and_the_command_line_wins(models, samples, tmp_path, capsys):
    (tmp_path / "p.toml").write_text(
        f'mode = "edge"\nmax_new_tokens = 20\nedge = "{models[1]}"\ncloud = "{models[3]}"'
    )
    args = ["describe", str(samples[0]), "--json", "--pipeline", str(tmp_path / "p.toml")]
    assert main(args) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["mode"], row["n_tokens"] <= 20) == ("edge", True)
    assert main([*args, "--mode", "exact"]) == 0
    assert json.loads(capsys.readouterr().out)["mode"] == "exact"
    (tmp_path / "p.toml").write_text("mdoe = 1")
    assert main(args) == 2
    told = f"streamer: {tmp_path}/p.toml: unknown option 'mdoe'; did you mean mode?; known are "
    assert capsys.readouterr().err.startswith(told)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            "describe a.wav --mdoe exact",
            "unrecognized arguments: --mdoe exact; did you mean --mode?; see",
        ),
        ("describe a.wav --quie", "unrecognized arguments: --quie; did you mean --quiet?; see"),
        ("serve --max-session=3", "--max-session=3; did you mean --max-sessions?; see"),
        ("descibe a.wav", "did you mean describe?; see streamer --help"),
        ("describe a.wav --mode gatd", "did you mean gated?; see streamer describe --help"),
    ],
)
def test_a_typo_is_told_with_what_was_meant(command, told, capsys):
    """And no option may be shortened: what is short today means two things tomorrow."""
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert told in err


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
        told = " ".join(action.help.split())
        assert "default" in told, action.option_strings
        owner = COMMANDS[command].options
        owner = owner if hasattr(owner, action.dest) else Config
        counts = getattr(owner, action.dest)
        if counts is not None and not isinstance(counts, bool | tuple):
            shown = f"{counts:g}" if isinstance(counts, int | float) else counts
            assert told.endswith(f"default {shown}"), told


def test_every_example_can_be_typed():
    """Of each option, in docs/options.md, and of each group, in --help."""
    parser = build_parser()
    for name, command in COMMANDS.items():
        for owner in [command.options] + [Config] * command.has_config:
            for each, about, _ in declared(owner):
                groups = [about.group.example] if about.group else []
                own = [f"{flag_of(each.name)} {about.example}"] if about.example and groups else []
                for example in own + groups:
                    risk = "--risk 0.05 " * (name == "calibrate" and "--risk" not in example)
                    words = [name, *command.arguments.split(), *(risk + example).split()]
                    given = vars(parser.parse_args(words))
                    command.options(**taken(command.options, given))


def test_the_page_of_options_is_current():
    written = (ROOT / "docs" / "options.md").read_text("utf-8")
    assert written == page(), "`make options` writes it"


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
