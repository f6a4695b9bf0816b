"""`streamer label`: a table that goes on where it was; Ctrl-C; `compare` and `models`."""

import contextlib
import csv
import json
import multiprocessing
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
import soundfile
from places import ROOT, SAMPLES
from processes import PATIENCE_S, run_here, started, wait_for

import streamer
from streamer.cli import main
from streamer.commands.compare import row_of
from streamer.commands.label import ENDED, ENDS, Rows, made_with, tag_of
from streamer.commands.process import _work
from streamer.config import Config, ConfigError
from streamer.core.attributes import ATTRIBUTES, ENGLISH, Reading
from streamer.core.text import told
from streamer.model.checkpoint.card import read_card
from streamer.model.checkpoint.weights import fingerprint_of
from streamer.model.thinker import resolve


def label(*words):
    """(status, stderr) of the command."""
    status, _, err = run_here("label", *words)
    return status, err


def rows_of(path):
    text = path.read_text("utf-8")
    if path.suffix == ".csv":
        return list(csv.DictReader(text.splitlines()))
    return [json.loads(line) for line in text.splitlines()]


def test_a_folder_becomes_a_table_and_a_second_run_goes_on(tmp_path):
    clips, out = tmp_path / "clips", tmp_path / "labels.csv"
    clips.mkdir()
    shutil.copy(ROOT / "samples/plain.wav", clips)
    (clips / "broken.wav").write_bytes(b"RIFF but no recording")
    status, err = label(clips, "--out", out, "--mode", "edge", "--jobs", 2)
    assert status == 1
    assert "1 of 2 recordings are labelled" in err
    broken, plain = rows_of(out)
    assert [*plain][:3] == ["file", "text", "duration"]
    assert plain["text"].startswith("说话人")
    assert 50 < float(plain["utterance_pitch_mean"]) < 500
    assert 1 < float(plain["rate_syllables_per_s"]) < 10
    assert (plain["language"], plain["error"], broken["text"]) == ("zh", "", "")
    assert broken["error"]
    name = read_card(resolve("embedded", "edge")).attributes["rate"][int(plain["rate_level"])]
    assert (plain["rate_zh"], plain["rate_en"]) == (name["name"], ENGLISH["rate"][name["name"]])
    (clips / "broken.wav").unlink()
    status, err = label(clips, "--out", out, "--mode", "edge")
    assert status == 0
    assert "1 of 1 are in" in err
    assert rows_of(out) == [plain]


def test_rows_of_other_options_are_made_anew_and_other_recordings_stay(tmp_path):
    first, second = (str(path) for path in SAMPLES[:2])
    for name in ("labels.csv", "labels.jsonl"):
        out = tmp_path / name
        assert label(first, "--out", out, "--mode", "edge")[0] == 0
        assert "are in" not in label(second, "--out", out, "--mode=edge", "--attributes=rate")[1]
        assert [row["file"] for row in rows_of(out)] == [first, second]
        _, err = label(second, first, "--out", out, "--mode", "edge")
        assert "made with other options; they are made anew" in err
        assert "1 of 2 are in" in err
        assert {row["made_with"] for row in rows_of(out)} == {"mode edge"}
        assert sorted(row["file"] for row in rows_of(out)) == sorted([first, second])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mode": "edge"}, "mode edge"),
        ({"cloud": "ws://u:secret@host:1"}, "mode gated, cloud elsewhere"),
        ({"temperature": 0.9, "seed": 3}, "mode gated, temperature 0.9, seed 3"),
        ({"words": "models", "num_slots": 9}, "mode gated, words models"),
        ({"attributes": "pitch"}, "mode gated, attributes pitch"),
    ],
)
def test_a_row_names_the_options_that_its_words_depend_on(options, told):
    assert made_with(Config(**options)) == told


def test_a_table_takes_up_any_name_and_what_a_killed_run_left(tmp_path):
    """A name that is no UTF-8, and line ends of Unicode."""
    names = [os.fsdecode(b"\xff.wav"), "a\u2028b.wav", "c\x85d.wav", "e\nf.wav", "中文.wav"]
    out = tmp_path / "labels.jsonl"
    rows = Rows(out)
    for name in names:
        rows.add({"file": name, "text": "x", "made_with": ""})
    rows.add({"file": "b.wav", "error": "empty"})
    with out.open("a", encoding="utf-8") as file:
        file.write('{"file": "c.wa')
    found = Rows(out)
    assert len(found.done) == len(names)
    assert found.left_of([*names, "b.wav"], "") == ["b.wav"]
    found.publish(names)
    lines = out.read_bytes().decode("utf-8").split("\n")[:-1]
    files = [
        json.loads(line)["file"].encode() for line in lines
    ]  # strict readers refuse half pairs
    assert files[0] == rb"\udcff.wav"
    assert len(found.done) == len(names)


def test_a_file_that_is_no_table_of_ours_is_left_alone(tmp_path):
    out = tmp_path / "labels.jsonl"
    out.write_text('{"name": 1}\nsomething\n', "utf-8")
    with pytest.raises(ConfigError, match=r"line 1 of .* is no row of ours; give another --out"):
        Rows(out)
    assert out.read_text("utf-8") == '{"name": 1}\nsomething\n'


def test_a_table_in_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "labels.parquet"
    rows = Rows(out)
    unknown = {"error": None, "rate_en": None, "timbre_db": None}
    rows.add({"file": "a.wav", "text": "x", "pause_count": 2, "snr": 31.5} | unknown)
    rows.publish(["a.wav"])
    table = parquet.read_table(out)
    assert [*map(str, table.select([*unknown]).schema.types)] == ["string", "string", "double"]
    (row,) = table.to_pylist()
    assert (row["file"], row["pause_count"], row["snr"], row["error"]) == ("a.wav", 2, 31.5, None)


def test_tags_are_those_of_dataspeech(tmp_path):
    """Bounds belong to the bin above; the tags are those of the same rows."""
    found = [tag_of("noise", snr) for snr in (25.4, 80.0, None)]
    assert found == ["very noisy", "very clean", None]
    assert tag_of("speech_monotony", 70.0) == "expressive and animated"
    out = tmp_path / "labels.jsonl"
    assert label(SAMPLES[0], "--out", out, "--mode", "edge")[0] == 0
    (row,) = rows_of(out)
    assert row["noise"] == tag_of("noise", row["snr"])
    assert row["speech_monotony"] == tag_of("speech_monotony", row["utterance_pitch_std"])


def test_intervals_beside_each_recording_become_rows(tmp_path):
    """The same numbers as in Python; rows that a killed run left incomplete are made anew."""
    shutil.copy(ROOT / "samples/pauses.wav", tmp_path)
    data = (ROOT / "samples/plain.wav").read_bytes()
    (tmp_path / "plain.wav").write_bytes(data[: 3 * len(data) // 4])
    cues = "00:00.000 --> 00:01.500\nyes\n\n00:01.500 --> 00:09.500\nno\n"
    (tmp_path / "plain.vtt").write_text(cues)
    out = tmp_path / "labels.csv"
    words = (tmp_path, "--out", out, "--intervals", "vtt", "--jobs", 1)
    status, err = label(*words)
    assert status == 1
    assert "pauses.vtt: No such file" in err
    missing, yes, no = rows_of(out)
    assert [*yes][:3] == ["file", "start_s", "end_s"]
    assert missing["error"]
    assert [row["transcript"] for row in (yes, no)] == ["yes", "no"]
    assert [row["warning"].startswith("is cut short: ") for row in (yes, no)] == [True, True]
    assert [ENDS in row["warning"] for row in (yes, no)] == [False, True]
    wanted = streamer.measure_intervals(tmp_path / "plain.wav", [(0, 1.5), (1.5, 9.5)])
    for row, measures in zip((yes, no), wanted, strict=True):
        assert float(row["pitch_median_hz"]) == round(measures.pitch_median_hz, 4)
        assert float(row["duration"]) == float(row["end_s"]) - float(row["start_s"])
    rows = tmp_path / "labels.csv.rows.jsonl"
    rows.write_text("\n".join(rows.read_text().splitlines()[:-1]) + "\n")
    (tmp_path / "pauses.vtt").write_text(cues)
    status, err = label(*words)
    assert status == 0
    assert "already" not in err
    assert rows_of(out)[2:] == [yes, no]


def test_what_never_returns_holds_nothing_up(tmp_path):
    """`streamer describe` inside a library's call that never returns, here PyAV's."""
    begun = tmp_path / "begun"
    code = f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(1000)\n"
    (tmp_path / "av.py").write_text(code)
    env = os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    with started("describe", SAMPLES[0], "--mode", "edge", env=env) as process:
        wait_for(begun.exists)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
        assert process.stderr.read() == ""


@pytest.fixture(scope="module")
def hour(tmp_path_factory):
    """A recording that takes minutes."""
    path = tmp_path_factory.mktemp("long") / "hour.flac"
    audio, rate = soundfile.read(SAMPLES[0], dtype="int16")
    with soundfile.SoundFile(path, "w", rate, 1) as long:
        for _ in range(3600 * rate // len(audio)):
            long.write(audio)
    return path


@pytest.fixture
def folder(tmp_path, hour):
    """Two short recordings, and between them, by name, one that takes minutes."""
    for name in ("a.wav", "zz.wav"):
        shutil.copy(SAMPLES[0], tmp_path / name)
    os.link(hour, tmp_path / "z.flac")
    return tmp_path


def children(parent):
    lists = Path(f"/proc/{parent}/task").glob("*/children")
    return " ".join(each.read_text() for each in lists).split()


def reading(parent):
    """Its processes that have the long recording in hand."""
    found = set()
    for child in children(parent):
        with contextlib.suppress(OSError):
            opened = map(os.readlink, Path(f"/proc/{child}/fd").iterdir())
            if any(name.endswith("/z.flac") for name in opened):
                found.add(int(child))
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_label_leaves_no_process_and_says_how_to_go_on(folder, number):
    """Ctrl-C reaches all its processes, other signals the first one alone."""
    out = folder / "labels.jsonl"
    with started("label", folder, "--out", out, "--jobs", 1) as process:
        wait_for(lambda: reading(process.pid))
        worker = reading(process.pid).pop()
        wait_for(lambda: out.read_text("utf-8").count("\n"))  # the first row is there
        send = os.killpg if number == signal.SIGINT else os.kill
        send(process.pid, number)
        _, err = process.communicate(timeout=PATIENCE_S)
        wait_for(lambda: not Path(f"/proc/{worker}/fd/0").exists())
    if number == signal.SIGKILL:
        assert process.returncode == -number
    else:
        assert process.returncode == 128 + number
        assert err == f"streamer: interrupted: 1 of 3 are in {out}; run it again to go on\n"


def test_ctrl_c_while_its_processes_begin(folder):
    out = folder / "labels.jsonl"
    with started("label", folder, "--out", out, "--jobs", 2) as process:
        wait_for(lambda: len(children(process.pid)) == 3)  # one tracks resources
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert err == f"streamer: interrupted: 0 of 3 are in {out}; run it again to go on\n"


def test_a_process_that_the_first_one_has_left_says_nothing(capfd):
    ours, theirs = multiprocessing.Pipe()
    ours.send("file")
    ours.close()
    process = multiprocessing.get_context("spawn").Process(target=_work, args=(len, theirs))
    process.start()
    process.join(PATIENCE_S)
    assert (process.exitcode, capfd.readouterr().err) == (0, "")


def test_a_recording_that_ends_its_process_is_a_row_with_an_error(folder):
    """It is tried twice. The next one, which waited in the same process, is labelled."""
    out = folder / "labels.jsonl"
    with started("label", folder, "--out", out, "--jobs", 1) as process:
        killed = set()
        for _ in range(2):
            wait_for(lambda: reading(process.pid) - killed)
            (worker,) = reading(process.pid) - killed
            os.kill(worker, signal.SIGKILL)
            killed.add(worker)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    found = {Path(row["file"]).name: row["error"] for row in rows}
    assert found == {"a.wav": None, "z.flac": ENDED, "zz.wav": None}
    told = f"2 of 3 recordings are labelled in {out}; 1 could not be: their rows have `error`\n"
    assert err.endswith(told)


SLOW, FAST = (str(ROOT / "samples" / f"{name}.wav") for name in ("slow_soft", "fast_loud"))


def of(name, value, error, level=1):
    return Reading(name, level, 5, "name", value, error, "unit", None)


@pytest.mark.parametrize(
    ("first", "second", "numbers", "verdict"),
    [
        (-23.24, -23.68, "-23.2 → -23.7 unit -0.5 ±0.2", "perhaps softer"),
        (-23.6, -24.4, "-23.6 → -24.4 unit -0.8 ±0.2", "softer"),
        (-23.24, -23.26, "-23 → -23 unit +0 ±1", "the same, within the error"),
        (-37.0, -15.0, "-37 → -15 unit +22 ±1", "louder"),
    ],
)
def test_a_word_agrees_with_the_numbers_beside_it(first, second, numbers, verdict):
    """A difference is never shown as 0, and equality never as -0."""
    title, *shown, word = row_of(of("loudness", first, 0.15), of("loudness", second, 0.15), "en")
    assert (title, " ".join(shown), word) == ("loudness", numbers, verdict)


def test_two_takes_are_a_table_and_json():
    lines = run_here("compare", SLOW, FAST)[1].splitlines()
    assert lines[0].startswith(f"{SLOW}: 说话人")
    assert lines[1].startswith(f"{FAST}: 说话人")
    assert [line.split()[0] for line in lines[2:]] == [told("zh", name) for name in ATTRIBUTES]
    assert re.fullmatch(r"  语速 +[\d.]+ → [\d.]+ 音节/秒 +\+[\d.]+ ±[\d.]+ +更快", lines[2])
    english = run_here("compare", SLOW, FAST, "--language", "en")[1].splitlines()
    assert [line.split()[0] for line in english[2:]] == list(ATTRIBUTES)
    row = json.loads(run_here("compare", SLOW, FAST, "--json")[1])
    rate = row["attributes"]["rate"]
    assert rate["difference"] == pytest.approx(rate["second"]["value"] - rate["first"]["value"])
    assert (row["first"]["file"], rate["verdict"]) == (SLOW, "faster")


def test_a_broken_model_hides_no_other(tiny_pair, tmp_path, capsys, monkeypatch):
    """Two models, one that does not exist, and two in the hub's cache."""
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    snapshots = [f"hub/models--Qwen--Qwen2.5-Omni-{name}/snapshots/abc" for name in "AB"]
    cached = [shutil.copytree(tiny_pair[0], tmp_path / each) for each in snapshots]
    (cached[1] / "config.json").write_text("no JSON")
    given = [*map(str, tiny_pair), str(tmp_path / "none")]
    assert main(["models", "--json", *given]) == 1
    out, err = capsys.readouterr()
    rows = json.loads(out)["models"]
    specs = ["embedded", "embedded", "Qwen/Qwen2.5-Omni-A", *given[:2]]
    assert [row["spec"] for row in rows] == specs
    wanted = [fingerprint_of(found) for found in (cached[0], *tiny_pair)]
    assert [row["fingerprint"] for row in rows[2:]] == wanted
    assert rows[-2]["megabytes"] < rows[-1]["megabytes"]
    broken, absent = err.splitlines()
    assert broken.startswith(f"streamer: {cached[1]}")
    told = "no such directory; give one that holds a model's config.json"
    assert absent == f"streamer: {given[2]}: {told}"
    main(["models", given[0]])
    assert f"{given[0]} (either)" in capsys.readouterr().out.splitlines()
