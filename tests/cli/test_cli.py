"""Commands as a person and a script meet them: output, a terminal, exit statuses, and options by
keyword, in a file and on the command line."""

import contextlib
import io
import json
import os
import pty
import re
import runpy
import socket
import subprocess
import sys
import termios
from pathlib import Path

import msgspec
import numpy as np
import pytest
import soundfile
from places import ROOT, SAMPLES
from processes import ENVIRONMENT, WITHIN_S, begin, ended, streamer
from processes import run_here as here

from streamer import Config
from streamer.cli import COMMANDS, build_parser, main, options_class
from streamer.config import ConfigError
from streamer.core.declare import options_of, taken
from streamer.core.decoding.plan import PRESETS
from streamer.extras import load
from streamer.model.thinker import resolve
from streamer.progress import CLEAR


@pytest.fixture(scope="module")
def models(tiny_pair):
    """The pair that the command line describes with."""
    return ["--edge", tiny_pair[0], "--cloud", tiny_pair[1]]


def rows_of(out):
    return [json.loads(line) for line in out.splitlines()]


def test_channels_apart_are_speakers_of_their_own(models, samples, tmp_path):
    """Each channel says what it says alone, with its number; a bad file is reported once."""
    sounds = [soundfile.read(file)[0] for file in samples[:2]]
    one, two = (sound[: min(map(len, sounds))] for sound in sounds)
    for name, sound in (("one", one), ("two", two), ("both", np.stack([one, two], 1))):
        soundfile.write(tmp_path / f"{name}.wav", sound, 16_000, subtype="PCM_16")
    files = [tmp_path / f"{name}.wav" for name in ("both", "one", "two", "none")]
    status, out, _ = here("describe", *files, "--channels", "apart", "--json", *models)
    rows = rows_of(out)
    assert (status, len(rows)) == (1, 5)
    assert [row.get("channel") for row in rows] == [0, 1, 0, 0, None]
    assert [row["text"] for row in rows[:2]] == [row["text"] for row in rows[2:4]]
    assert rows[4] == {"file": str(files[3]), "error": "no such file"}
    _, out, _ = here("describe", files[0], "--channels", "apart", *models)
    names = [line.partition(": ")[0] for line in out.splitlines()]
    assert names == [f"{files[0]}, channel {channel}" for channel in (0, 1)]


def test_names_stand_before_sentences_and_stdin_is_a_file(models, samples, tmp_path):
    soundfile.write(tmp_path / "short.wav", np.zeros(160), 16_000)
    files = [samples[0], tmp_path / "short.wav", samples[1]]
    more = ("--mode", "edge", *models)
    status, out, _ = here("describe", files[0], *more, *files[1:])
    _, plain, _ = here("describe", *files, "--quiet", *more)
    assert status == 0
    named = [
        f"{file}: {text}".rstrip() for file, text in zip(files, plain.split("\n"), strict=False)
    ]
    assert out.splitlines() == named
    status, out, _ = streamer("describe", "-", *more, stdin=samples[0].read_bytes())
    assert (status, out.strip()) == (0, plain.splitlines()[0].strip())


def test_directories_and_jobs(models, samples, tmp_path):
    """A directory is searched for recordings, by name; two jobs give the results of one."""
    (tmp_path / "b" / ".hidden").mkdir(parents=True)
    for name, file in zip(("b/2.WAV", "1.wav", "b/.hidden/no.wav"), samples, strict=False):
        (tmp_path / name).write_bytes(file.read_bytes())
    (tmp_path / "notes.txt").write_text("no recording")
    os.mkfifo(tmp_path / "pipe.wav")
    os.symlink("/dev/zero", tmp_path / "zero.wav")
    status, out, err = here("describe", tmp_path, "--json", "--mode", "edge", *models)
    assert (status, err) == (0, "")
    rows = rows_of(out)
    assert [row["file"] for row in rows] == [f"{tmp_path}/1.wav", f"{tmp_path}/b/2.WAV"]
    options = ("--jobs", "2", "--mode", "edge", *models)
    status, out, err = here("describe", tmp_path, tmp_path / "none.wav", "--json", *options)
    assert (status, err) == (1, f"streamer: {tmp_path}/none.wav: no such file\n")
    found = {row["file"]: row.get("ids") for row in rows_of(out)}
    assert found == {row["file"]: row["ids"] for row in rows} | {f"{tmp_path}/none.wav": None}


def test_samples_and_a_client_come_with_the_package():
    *samples, client = map(Path, here("samples")[1].split())
    assert client.name == "streamer_client.py"
    assert client.is_file()
    assert {"plain.wav", "slow_soft.wav"} <= {sample.name for sample in samples}


def test_bad_files_are_one_line_each_and_the_others_described(models, samples, tmp_path):
    (tmp_path / "text.wav").write_text("these are words")
    (tmp_path / "empty.wav").touch()
    whole = samples[0].read_bytes()
    (tmp_path / "cut.wav").write_bytes(whole[: len(whole) // 2])
    for channels in (1, 2):
        audio = np.zeros((20_000, channels))
        audio[8_000, -1] = np.nan
        soundfile.write(tmp_path / f"nan{channels}.wav", audio, 16_000, subtype="FLOAT")
    sound, rate = soundfile.read(samples[0])
    for name, seconds in (("short", 0.01), ("1.4", 1.4), ("1.6", 1.6)):
        soundfile.write(tmp_path / f"{name}.wav", sound[: int(seconds * rate)], rate)
    (tmp_path / "folder").mkdir()
    bad = ["missing.wav", "folder", "text.wav", "empty.wav", "nan1.wav", "nan2.wav"]
    good = ["cut.wav", "short.wav", "1.4.wav", "1.6.wav"]
    files = [str(tmp_path / name) for name in [*bad, *good]]
    status, out, err = here("describe", *files, samples[1], "--json", *models)
    assert status == 1
    rows = {row["file"]: row for row in rows_of(out)}
    assert list(rows) == [*files, str(samples[1])]
    assert all(set(rows[file]) == {"file", "error"} for file in files[: len(bad)])
    place = "bad audio at 0.500 s: sample value nan"
    assert rows[files[4]]["error"] == f"{place}; give finite ones"
    assert rows[files[5]]["error"] == f"{place} in channel 1; give finite ones"
    assert (rows[files[7]]["stop_reason"], rows[files[7]]["text"]) == ("no_speech", "")
    assert rows[files[8]]["warning"].startswith("only 1.4 s of speech: ")
    assert rows[files[9]]["warning"] is None
    (row,) = rows_of(here("describe", files[8], "--json", "--measures", *models)[1])
    assert (row["warning"], len(row["measures"]["warnings"])) == (None, 1), "said twice"
    lines = err.splitlines()
    assert [line.split(": ")[1] for line in lines] == [*files[: len(bad) + 1], files[8]]


def test_silence_is_reported_and_a_script_is_not_disturbed(models, tmp_path):
    silence = tmp_path / "silence.wav"
    soundfile.write(silence, np.zeros(32_000), 16_000)
    told = f"streamer: {silence}: no speech was heard, so there is no sentence\n"
    for options, err in (((), told), (("--json",), ""), (("--quiet",), "")):
        found = here("describe", silence, "--mode", "edge", *options, *models)
        assert (found[0], found[2]) == (0, err)
    status, out, err = here("describe", silence, "--mode", "edge", "--measures", *models)
    assert (status, out, err) == (0, "\n  2.0 秒中说话 0.0 秒\n", told)
    silence.write_bytes(silence.read_bytes()[:20_000])
    (line,) = here("describe", silence, "--mode", "edge", *models)[2].splitlines()
    assert re.fullmatch("streamer: .*: is cut short: .*; no speech was heard, .*", line)


NAMES = [b"two  blanks.wav", "中文 名.wav".encode(), b"bell\x07\x1b[31m.wav", b"not-utf8-\xff.wav"]


def test_any_file_name_stands_in_one_plain_line(models, samples, tmp_path):
    """A recording and, with no- before it, a missing one."""
    files = []
    for name in NAMES:
        file = os.path.join(os.fsencode(tmp_path), name)
        os.symlink(samples[0], file)
        files += [file, os.fsencode(tmp_path) + b"/no-" + name]
    command = [sys.executable, "-m", "streamer", "describe", *files, *map(str, models)]
    for more in (["--json"], []):
        done = subprocess.run([*command, *more], capture_output=True, env=ENVIRONMENT, timeout=120)
        told = done.stderr.decode().splitlines()
        assert (done.returncode, len(told)) == (1, len(NAMES))
        assert all(line.isprintable() for line in told)
        assert r"bell\x07\x1b[31m.wav" in told[2]
        if more:
            rows = map(msgspec.json.decode, done.stdout.splitlines())  # strict
            wanted = [os.fsdecode(f).encode(errors="backslashreplace").decode() for f in files]
            assert [row["file"] for row in rows] == wanted


@pytest.mark.parametrize("words", ["describe a b", "models", "serve --port 0 --mode edge"])
def test_a_stdout_that_cannot_be_written_is_reported_once(models, samples, words):
    given = [str(samples["ab".index(w)]) if w in ("a", "b") else w for w in words.split()]
    given += map(str, models) if given[0] == "describe" else ()
    with open("/dev/full", "wb") as full:
        done = ended(sys.executable, "-m", "streamer", *given, stdout=full)
    told = "stdout cannot be written (No space left on device); make room, or write elsewhere"
    lines = [line for line in done.stderr.splitlines() if not line.startswith("loading ")]
    assert (done.returncode, lines) == (1, [f"streamer: {told}"])


@pytest.mark.parametrize("command", ["serve", "verifier"])
def test_a_port_that_is_taken_is_found_before_a_model_is_loaded(command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, out, err = here(command, "--port", port)
    assert (status, out) == (1, "")
    told = f"cannot listen on 127.0.0.1:{port} (Address already in use); choose another --port"
    assert err == f"streamer: {told} or --host\n"


def shown_by(leader):
    """The output of a terminal, to its end."""
    shown = b""
    with contextlib.suppress(OSError):  # its other end is closed
        while piece := os.read(leader, 4096):
            shown += piece
    os.close(leader)
    return shown.decode()


@pytest.fixture
def on_a_terminal():
    """Runs a command with stderr on a terminal: (status, stdout if it is none, what is shown)."""

    def run(*args, stdout=None):
        leader, follower = pty.openpty()
        termios.tcsetwinsize(follower, (24, 60))
        shown = begin(shown_by, leader)
        with (
            open(follower, "w") as terminal,
            contextlib.redirect_stderr(terminal),
            contextlib.redirect_stdout(stdout or terminal),
        ):
            status = begin(main, [*map(str, args)]).result(WITHIN_S)
        said = stdout.getvalue() if isinstance(stdout, io.StringIO) else ""
        return status, said, shown.result(WITHIN_S)

    return run


def test_parts_are_lines_that_begin_with_their_time(models, samples, tmp_path, on_a_terminal):
    """On a terminal each line stands whole between the bar's frames."""
    audio, rate = soundfile.read(samples[0], dtype="int16")
    soundfile.write(tmp_path / "long.wav", np.resize(audio, 70 * rate), rate)
    words = ("describe", tmp_path / "long.wav", "--mode", "edge", *models)
    status, out, err = here(*words, "-v")
    assert status == 0
    assert [line[:7] for line in out.splitlines()] == ["[0:00] ", "[1:00] "]
    assert re.fullmatch(r"  \S+long.wav: 70.0 s, \d+ tokens, 0% verified \[edge\]\n", err)
    assert here(*words, "--quiet")[1].splitlines() == [line[7:] for line in out.splitlines()]
    status, _, shown = on_a_terminal(*words)
    assert status == 0
    assert "describing" in shown
    seen = [line.rpartition("\r")[2] for line in shown.replace("\r\n", "\n").split("\n")]
    seen = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in seen]
    assert set(out.splitlines()) <= set(seen)
    status, piped, shown = on_a_terminal(*words, stdout=io.StringIO())
    assert (status, piped) == (0, out), "`> out.txt` and `| cmd` get the sentences"
    assert re.search(r"describing .*\d:\d\d of 1:10 ", shown)
    assert max(map(len, shown.split(CLEAR))) == 59, "a frame of two rows could not be erased"
    assert piped.splitlines()[0] not in shown


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mode": "fast"}, "mode is 'fast'"),
        ({"temperature": float("inf")}, "temperature .* not inf"),
        ({"temperature": 9e-7}, "0 .greedy. or 0.000001 to 1000000, not 9e-07"),
        ({"top_p": 1.1}, "top_p must be above 0 and at most 1, not 1.1"),
        ({"k": 0}, "k is 0; it may be 1 to 64"),
        ({"threshold": float("nan")}, "threshold"),
        ({"cloud": "none", "mode": "exact"}, "needs a cloud"),
        ({"mode": "\udcff"}, "choose one of"),
        ({"max_new_tokens": 8, "min_new_tokens": 9}, "0 to 8"),
        ({"draft": "generate", "temperature": 0.7}, "greedy"),
        ({"attributes": "tempo"}, "names 'tempo'; known are rate"),
        ({"draft": "generate", "attributes": "rate"}, "take draft incremental"),
    ],
)
def test_keywords_that_mean_nothing_are_refused(options, reason):
    with pytest.raises(ConfigError, match=reason) as error:
        Config.of(None, options)
    assert str(error.value).isprintable()


def test_presets_fill_in_options_that_are_not_given():
    for options, least in (({"max_new_tokens": 8}, 8), ({}, 16), ({"min_new_tokens": 3}, 3)):
        assert Config(**options).plan(PRESETS["fluent"]).rules.min_new_tokens == least
    assert Config(cloud="none").plan(PRESETS["fluent"]).mode == "edge"
    quality = Config(threshold=1.5, preset="quality").plan(PRESETS["quality"])
    assert (quality.threshold, quality.k) == (1.5, 6)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('mode = "gated" # Größe'.encode("latin-1"), "is not TOML"),
        (b"k = 4.5", "k is 4.5; it may be 1 to 64"),
        (b"mdoe = 1", "unknown option 'mdoe'; known are "),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(tmp_path, text, told):
    (tmp_path / "bad.toml").write_bytes(text)
    with pytest.raises(ConfigError, match=rf"bad\.toml: {told}") as error:
        Config.from_toml(tmp_path / "bad.toml")
    assert str(error.value).isprintable()


def test_pipeline_files_are_valid():
    files = [file for file in (ROOT / "pipelines").glob("*.toml") if file.name != "fleet.toml"]
    assert len([*map(Config.from_toml, files)]) >= 3
    with pytest.raises(ConfigError, match="cannot be read"):
        Config.from_toml("nowhere.toml")


def test_the_command_line_overrides_a_pipeline_file(tiny_models, samples, tmp_path, capsys):
    lines = ['mode = "edge"', "max_new_tokens = 20"]
    lines += [f'{side} = "{path}"' for side, path in tiny_models.items()]
    (tmp_path / "p.toml").write_text("\n".join(lines))
    args = ["describe", str(samples[0]), "--json", "--pipeline", str(tmp_path / "p.toml")]
    for more, mode in (([], "edge"), (["--mode", "exact"], "exact")):
        assert main([*args, *more]) == 0
        row = json.loads(capsys.readouterr().out)
        assert (row["mode"], row["n_tokens"] <= 20) == (mode, True)


def test_every_command_s_example_can_be_typed():
    parser = build_parser()
    for name, (_, example) in COMMANDS.items():
        given = vars(parser.parse_args(example.split()))
        assert options_class(name)(**taken(options_class(name), given))


def test_there_are_few_options_and_each_has_a_text():
    """A flag, operand, keyword, threshold of the coach or key of fleet.toml counts once."""
    owners = (Config, load("coach"), *map(options_class, COMMANDS))
    owners += tuple(load("fleet.tables").values())
    found = [each for owner in owners for each in options_of(owner)]
    assert len({each.name for each in found}) <= 70
    assert all(each.help for each in found)


def test_the_page_of_options_is_current():
    page = runpy.run_path(os.fspath(ROOT / "docs/options_page.py"))["page"]
    assert (ROOT / "docs/options.md").read_text("utf-8") == page(), "`make options` writes it"


EDGE = resolve("embedded", "edge")
# words -> exit status, a part of the line. Eight recordings stand for `clips`
CALLS = [
    ("describe", 2, "FILE"),
    ("describe x.wav --k 0", 2, "--k is '0'; it may be 1 to 64"),
    ("describe x.wav --seed x", 2, "--seed is 'x'; Expected `int`"),
    # no option may be shortened: a short one today means two things tomorrow
    ("describe a --quie b", 2, "unrecognized arguments: --quie; see streamer describe --help"),
    ("describe here.wav --language fr", 2, "'fr', but this model speaks zh and en; leave it out"),
    ("describe here.wav --timeline s.svg", 2, "give a name in .json, .vtt, .TextGrid or .png"),
    ("describe a.wav b.wav --timeline s.json", 2, "2 are given: give one recording"),
    ("describe a.wav --timeline nowhere/s.json", 2, "cannot be written there"),
    ("compare here.wav", 2, "the following arguments are required: FILE"),
    ("label a.wav --out labels.txt", 2, "give a name in .jsonl, .csv or .parquet"),
    ("label - --out labels.csv", 2, "label reads files"),
    ("label here.wav --out nowhere/labels.csv", 2, "give a file that can be written"),
    ("mcp ./nowhere", 2, "nowhere is no folder"),
    ("director --replicas ftp://h", 2, "give ws://HOST:PORT of a replica"),
    ("serve --host 0.0.0.0", 2, "set --api-key"),
    ("serve --cert x.pem", 2, "needs both"),
    ("serve --cert x.pem --key y.pem", 2, "cannot be used"),
    ("serve --port 0 --coach fast", 2, "give FILE.toml, or NAME=VALUE"),
    ("serve --port 0 --coach fast_ratio=quick", 2, "fast_ratio is 'quick'; it may be 0 to 5"),
    ("serve --port 0 --coach fast_ration=1.2", 2, "unknown option 'fast_ration'; known are"),
    ("serve --port 0 --coach fast_ratio=0.9", 2, "give more than 1, or 0 for off"),
    ("serve --port 0 --coach silence_s=-1", 2, "silence_s is -1.0; it may be 0 to 600"),
    ("serve --port 0 --coach none.toml", 2, "none.toml: cannot be read"),
    ("serve --port 0 --coach baseline=none.json", 2, "none.json: cannot be read"),
    ("serve --port 0 --edge ./nowhere", 1, "no such model directory"),
    ("calibrate clips --risk 0", 2, "--risk is '0'; it may be above 0 and below 1"),
    ("calibrate clips --risk 0.5 --cloud none", 2, "--cloud is none; calibration needs the model"),
    ("calibrate clips --risk 0.02", 1, "8 clips cannot certify a risk of 0.02: 49 are needed;"),
    ("calibrate clips --risk 0.5 --out /sys/myedge", 1, "/sys/myedge: cannot be written"),
    ("calibrate clips --risk 0.5 --out .", 1, ". exists; name a directory that does not"),
    ("calibrate clips --risk 0.5", 2, "thresholds come with streamer; --out myedge makes"),
    (f"calibrate clips --risk 0.5 --edge {EDGE}", 2, "(then --edge myedge)"),
    ("tune nothing --cloud embedded --out here", 1, "here exists"),
    ("tune empty --cloud embedded --out new", 1, "no recording there"),
    ("tune empty --cloud embedded --out new --speakers no", 2, "as a table"),
    ("tune empty --cloud embedded --out new --device cuda", 1, "no GPU"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current one: two recordings by name, a folder of eight, and two empty ones."""
    monkeypatch.chdir(tmp_path)
    for name in ("clips", "empty", "here"):
        (tmp_path / name).mkdir()
    (tmp_path / "here.wav").symlink_to(SAMPLES[0])
    for i in range(8):
        (tmp_path / "clips" / f"{i}.wav").symlink_to(SAMPLES[i % len(SAMPLES)])


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("words", "status", "told"), CALLS)
def test_a_call_that_cannot_be_is_one_line(words, status, told):
    found, out, err = here(*words.split())
    lines = [line for line in err.splitlines() if not line.startswith("loading ")]
    assert (found, out, len(lines)) == (status, "", 1)
    assert told in lines[0]
