"""`streamer label`: a table of recordings, which goes on where it was, with the faults in it."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import SAMPLES

import streamer
from streamer.cli import main
from streamer.commands.label import made_with
from streamer.commands.label_table import ENDS, INTERVAL_NAMES, NAMES, Row, Rows
from streamer.config import Config, ConfigError
from streamer.core.attributes import ENGLISH
from streamer.core.readings import dataspeech_tags
from streamer.model.checkpoint.card import read_card
from streamer.model.thinker import resolve


def label(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streamer", "label", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def rows_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def csv_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_folder_becomes_a_table_and_a_second_run_goes_on(tmp_path: Path) -> None:
    clips = tmp_path / "clips"
    clips.mkdir()
    (clips / "plain.wav").write_bytes(
        next(path for path in SAMPLES if path.name == "plain.wav").read_bytes()
    )
    (clips / "broken.wav").write_bytes(b"RIFF but no recording")
    out = tmp_path / "labels.csv"
    first = label(clips, "--out", out, "--mode", "edge", "--jobs", 2)
    assert first.returncode == 1, first.stderr
    assert "1 of 2 recordings are labelled" in first.stderr
    broken, plain = csv_of(out)
    assert tuple(plain) == NAMES
    assert plain["text"].startswith("说话人")
    assert 50 < float(plain["utterance_pitch_mean"]) < 500
    assert 1 < float(plain["rate_syllables_per_s"]) < 10
    assert plain["rate_level"] in {"0", "1", "2", "3", "4"}
    assert plain["language"] == "zh"
    names = read_card(resolve("embedded", "edge")).attributes["rate"][int(plain["rate_level"])]
    assert (plain["rate_zh"], plain["rate_en"]) == (names["name"], ENGLISH["rate"][names["name"]])
    assert not plain["error"]
    assert broken["error"]
    assert not broken["text"]

    (clips / "broken.wav").unlink()
    again = label(clips, "--out", out, "--mode", "edge")
    assert again.returncode == 0, again.stderr
    assert "1 of 1 are in" in again.stderr
    assert csv_of(out) == [plain]


def test_what_other_options_made_is_made_anew_and_other_recordings_stay(tmp_path: Path) -> None:
    """One row for each recording, whatever runs there were; nothing of a mixed table is hidden."""
    first, second = (str(path) for path in SAMPLES[:2])
    for name in ("labels.csv", "labels.jsonl"):
        out = tmp_path / name
        read = csv_of if name.endswith("csv") else rows_of
        assert label(first, "--out", out, "--mode", "edge").returncode == 0
        more = label(second, "--out", out, "--mode", "edge", "--attributes", "rate")
        assert "are in" not in more.stderr
        assert [row["file"] for row in read(out)] == [first, second]
        again = label(second, first, "--out", out, "--mode", "edge")
        assert "made with other options; they are made anew" in again.stderr
        assert "1 of 2 are in" in again.stderr
        assert {row["made_with"] for row in read(out)} == {"mode edge"}
        assert sorted(str(row["file"]) for row in read(out)) == sorted([first, second])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mode": "edge", "cloud": "ws://u:secret@host:1"}, "mode edge"),
        ({"cloud": "ws://u:secret@host:1"}, "mode gated, cloud elsewhere"),
        ({"temperature": 0.9, "seed": 3}, "mode gated, temperature 0.9, seed 3"),
        ({"attributes": "pitch, rate"}, "mode gated, says rate,pitch"),
    ],
)
def test_a_row_tells_what_its_words_depend_on(options: dict[str, Any], told: str) -> None:
    assert made_with(Config(**options)) == told


def test_what_a_killed_run_left_is_taken_up(tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    rows = Rows.open(out)
    rows.add(Row(file="a.wav", text="x"))
    rows.add(Row(file="b.wav", error="empty"))
    rows.close()
    with out.open("a", encoding="utf-8") as file:
        file.write('{"file": "c.wa')
    found = Rows.open(out)
    found.close()
    assert list(found.done) == ["a.wav"]
    found.publish(["a.wav"])
    assert [row["file"] for row in rows_of(out)] == ["a.wav"]


def test_a_file_that_is_no_table_of_ours_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    out.write_text('{"name": 1}\nsomething\n', "utf-8")
    with pytest.raises(ConfigError, match=r"line 1 of .* is no row of ours; give another --out"):
        Rows.open(out)
    assert out.read_text("utf-8") == '{"name": 1}\nsomething\n'


def test_a_table_in_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "labels.parquet"
    rows = Rows.open(out)
    rows.add(Row(file="a.wav", text="x", pause_count=2, snr=31.5))
    rows.close()
    rows.publish(["a.wav"])
    (row,) = parquet.read_table(out).to_pylist()
    assert (row["file"], row["pause_count"], row["snr"], row["error"]) == ("a.wav", 2, 31.5, None)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("a.wav", "--out", "labels.txt"), "give a name in .jsonl, .csv or .parquet"),
        (("-", "--out", "labels.csv"), "label reads files"),
        ((SAMPLES[0], "--out", "nowhere/labels.csv"), "give a file that can be written"),
    ],
)
def test_bad_usage_is_one_line(
    arguments: tuple[object, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["label", *map(str, arguments)]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1


def test_any_name_is_taken_up_again(tmp_path: Path) -> None:
    """No UTF-8, half a pair, and what Unicode takes for a line's end."""
    names = [
        os.fsdecode(b"not-utf8-\xff.wav"),
        "a\u2028b.wav",
        "c\x85d.wav",
        "e\nf.wav",
        "中文.wav",
    ]
    out = tmp_path / "labels.jsonl"
    rows = Rows.open(out)
    for name in names:
        rows.add(Row(file=name))
    rows.publish(names)
    rows.close()
    lines = out.read_bytes().decode("utf-8").split("\n")[:-1]
    files = [
        json.loads(line)["file"].encode() for line in lines
    ]  # strict readers refuse half a pair
    assert files[0] == rb"not-utf8-\udcff.wav"
    found = Rows.open(out)
    found.close()
    assert found.left_of(names, "") == []
    assert all(map(found.has, names))


def test_two_runs_never_write_one_table(tmp_path: Path) -> None:
    """Else the rows of the first were lost: the second puts a new file in the place of its own."""
    out = tmp_path / "labels.jsonl"
    first = Rows.open(out)
    with pytest.raises(ConfigError, match="is written by another run; wait for its end"):
        Rows.open(out)
    first.add(Row(file="a.wav"))
    first.close()
    second = Rows.open(out)
    second.close()
    assert list(second.done) == ["a.wav"]


def test_tags_are_those_of_dataspeech(tmp_path: Path) -> None:
    """Bounds belong to the bin above; the tags are those columns of the same rows."""
    assert dataspeech_tags({"snr": 25.4, "utterance_pitch_std": 70.0}) == {
        "noise": "very noisy",
        "speech_monotony": "expressive and animated",
    }
    assert dataspeech_tags({"snr": 80.0, "utterance_pitch_std": None}) == {
        "noise": "very clean",
        "speech_monotony": None,
    }
    out = tmp_path / "labels.csv"
    assert label(SAMPLES[0], "--out", out, "--mode", "edge", "--tags", "dataspeech").returncode == 0
    (row,) = csv_of(out)
    assert tuple(row) == (*NAMES, "noise", "speech_monotony")
    wanted = dataspeech_tags({name: float(row[name]) for name in ("snr", "utterance_pitch_std")})
    assert {name: row[name] for name in wanted} == wanted
    assert label(SAMPLES[0], "--out", out, "--mode", "edge").returncode == 0
    assert tuple(csv_of(out)[0]) == NAMES


def test_a_warning_about_the_recording_is_in_each_row_of_its_intervals(tmp_path: Path) -> None:
    data = SAMPLES[0].read_bytes()
    (tmp_path / "cut.wav").write_bytes(data[: 3 * len(data) // 4])
    cues = "00:00.000 --> 00:00.500\nyes\n\n00:00.500 --> 00:01.000\nno\n"
    (tmp_path / "cut.vtt").write_text(cues)
    done = label(tmp_path, "--out", tmp_path / "labels.csv", "--intervals", "vtt")
    assert done.returncode == 0, done.stderr
    warnings = [row["warning"] for row in csv_of(tmp_path / "labels.csv")]
    assert len(warnings) == 2
    assert all("is cut short" in warning for warning in warnings)


def test_intervals_beside_each_recording_become_rows(tmp_path: Path) -> None:
    """The same numbers as in Python; what a killed run left half done is made anew."""
    for name in ("plain", "pauses"):
        sample = next(path for path in SAMPLES if path.stem == name)
        (tmp_path / f"{name}.wav").write_bytes(sample.read_bytes())
    cues = "00:00.000 --> 00:01.500\nyes\n\n00:01.500 --> 00:09.500\nno\n"
    (tmp_path / "plain.vtt").write_text(cues)
    out = tmp_path / "labels.csv"
    first = label(tmp_path, "--out", out, "--intervals", "vtt", "--jobs", 1)
    assert first.returncode == 1, first.stderr
    assert "pauses.vtt: No such file" in first.stderr
    missing, yes, no = csv_of(out)
    assert tuple(yes) == INTERVAL_NAMES
    assert missing["error"]
    assert [yes["transcript"], no["transcript"]] == ["yes", "no"]
    wanted = streamer.measure_intervals(tmp_path / "plain.wav", [(0, 1.5), (1.5, 9.5)])
    for row, measures in zip((yes, no), wanted, strict=True):
        assert float(row["pitch_median_hz"]) == round(measures.pitch_median_hz, 4)
        assert float(row["duration"]) == float(row["end_s"]) - float(row["start_s"])

    assert [yes["warning"], no["warning"]] == ["", ENDS]

    rows = tmp_path / "labels.csv.rows.jsonl"
    rows.write_text("\n".join(rows.read_text().splitlines()[:-1]) + "\n")
    (tmp_path / "pauses.vtt").write_text(cues)
    again = label(tmp_path, "--out", out, "--intervals", "vtt", "--jobs", 1)
    assert again.returncode == 0, again.stderr
    assert "already" not in again.stderr
    assert csv_of(out)[2:] == [yes, no]
    refused = label(tmp_path, "--out", out, "--intervals", "vtt", "--mode", "cloud")
    assert "--mode has no effect with --intervals" in refused.stderr
