"""`streamer label`: a table of recordings, which goes on where it was, with the faults in it."""

import csv
import json
import os
import shutil

import pytest
from places import ROOT, SAMPLES
from processes import run_here

import streamer
from streamer.commands.label import ENDS, MONOTONY, NOISE, Rows, made_with, tag_of
from streamer.config import Config, ConfigError
from streamer.core.attributes import ENGLISH
from streamer.model.checkpoint.card import read_card
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
    """A name that is no UTF-8, and line ends of Unicode; one run at a time."""
    names = [os.fsdecode(b"\xff.wav"), "a\u2028b.wav", "c\x85d.wav", "e\nf.wav", "中文.wav"]
    out = tmp_path / "labels.jsonl"
    rows = Rows(out)
    with pytest.raises(ConfigError, match="is written by another run; wait for its end"):
        Rows(out)
    for name in names:
        rows.add({"file": name, "text": "x", "made_with": ""})
    rows.add({"file": "b.wav", "error": "empty"})
    rows.close()
    with out.open("a", encoding="utf-8") as file:
        file.write('{"file": "c.wa')
    found = Rows(out)
    assert len(found.done) == len(names)
    assert found.left_of([*names, "b.wav"], "") == ["b.wav"]
    found.publish(names)
    found.close()
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
    rows.add({"file": "a.wav", "text": "x", "pause_count": 2, "snr": 31.5, "error": None})
    rows.close()
    rows.publish(["a.wav"])
    (row,) = parquet.read_table(out).to_pylist()
    assert (row["file"], row["pause_count"], row["snr"], row["error"]) == ("a.wav", 2, 31.5, None)


def test_tags_are_those_of_dataspeech(tmp_path):
    """Bounds belong to the bin above; the tags are those of the same rows."""
    for snr, sd, noise, melody in (
        (25.4, 70.0, "very noisy", "expressive and animated"),
        (80.0, None, "very clean", None),
    ):
        assert (tag_of(snr, NOISE), tag_of(sd, MONOTONY)) == (noise, melody)
    out = tmp_path / "labels.jsonl"
    assert label(SAMPLES[0], "--out", out, "--mode", "edge")[0] == 0
    (row,) = rows_of(out)
    assert row["noise"] == tag_of(row["snr"], NOISE)
    assert row["speech_monotony"] == tag_of(row["utterance_pitch_std"], MONOTONY)


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
