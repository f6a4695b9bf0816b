"""People's recordings: taken from a clone by commit, filtered, split by speaker, counted, and
told in one line if missing."""

import json
import random
import shutil
import subprocess
import sys
import tomllib

import numpy as np
import pytest
import soundfile
import torch

from pipelines.embedded import people_gate
from pipelines.embedded.codecs import mp3, opus, passed_on, telephone
from pipelines.embedded.data import Composer, Corpus, as_loud
from pipelines.embedded.joint import Prompted
from pipelines.embedded.labels import ATTRIBUTES, frame_power
from pipelines.embedded.mel import band_hz, raw_log_mel
from pipelines.embedded.mix import between
from pipelines.embedded.people import sessions, spoken, write_noise, write_shard
from pipelines.embedded.people_check import figures, right
from pipelines.embedded.people_gate import SOURCES, half, turns
from pipelines.embedded.people_held import join
from pipelines.embedded.recordings import (
    TABLE,
    clips,
    decoded,
    git_folder,
    held_out,
    missing,
    table,
)
from pipelines.embedded.speak import SAMPLE_RATE, speak
from pipelines.embedded.speech import speech_frames
from pipelines.embedded.syllables import count
from pipelines.embedded.voices import Voice

pytestmark = pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="needs espeak-ng")
SENTENCES = ("今天天气很好我们一起去公园", "明天下午三点老师在学校等你", "他昨天从北京坐火车回来了")
FILTERS = table()["filters"]


def say(text, variant="m3", wpm=170):
    return speak(Voice("espeak", "cmn", variant), text, wpm=wpm) * 0.5


def git(folder, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def cloned(tmp_path_factory):
    """A clone as Common Voice lays it out: eight speakers, three sentences each, one pointer,
    one that is too soft."""
    clones = tmp_path_factory.mktemp("clones")
    folder = clones / "someone+voices"
    (folder / "zh-CN" / "clips").mkdir(parents=True)
    rows = ["client_id\tpath\tsentence\tup_votes\tdown_votes\tage\tgender"]
    for speaker in range(8):
        for i, text in enumerate(SENTENCES):
            name = f"{speaker}_{i}.mp3"
            samples = say(text, f"m{1 + speaker % 4}", 150 + 10 * speaker)
            samples = samples * (1e-4 if (speaker, i) == (0, 2) else 1.0)
            soundfile.write(folder / "zh-CN" / "clips" / name, samples, SAMPLE_RATE, format="MP3")
            rows.append(
                f"person{speaker}\t{name}\t{text}\t2\t0\t\t{'female' if speaker % 2 else 'male'}"
            )
    (folder / "zh-CN" / "clips" / "7_2.mp3").write_text(
        "version https://git-lfs.github.com/spec/v1\n"
    )
    (folder / "zh-CN" / "validated.tsv").write_text("\n".join(rows) + "\n", "utf-8")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "voices")
    source = {
        "id": "voices",
        "repository": "https://example.org/someone/voices",
        "commit": git(folder, "rev-parse", "HEAD"),
        "paths": r"^zh-CN/clips/.*\.mp3$",
        "layout": "common_voice",
        "base": "zh-CN",
        "language": "zh-CN",
        "cap": 60,
    }
    return clones, source


def test_clips_come_from_the_commit_with_their_facts(cloned):
    clones, source = cloned
    found = clips(clones, source)
    assert len(found) == 24
    assert {clip.speaker for clip in found} == {f"person{i}" for i in range(8)}
    first = next(clip for clip in found if clip.path.endswith("/1_0.mp3"))
    assert (first.said.text, first.said.sex, first.said.language) == (SENTENCES[0], "f", "zh-CN")
    usable = list(decoded(found, FILTERS))
    assert len(usable) == 22, "the pointer and the one that is too soft are left out"
    assert all(samples.dtype == np.float32 and len(samples) > SAMPLE_RATE for _, samples in usable)


def test_a_speaker_has_at_most_its_cap(cloned):
    clones, source = cloned
    found = clips(clones, {**source, "cap": 2})
    assert len(found) == 16


def test_speakers_are_on_one_side_each(cloned):
    clones, source = cloned
    sides = {}
    for clip in clips(clones, source):
        assert sides.setdefault(clip.speaker, clip.held) == clip.held
    people = [f"person{i}" for i in range(2000)]
    share = np.mean([held_out(who, source) for who in people])
    assert share == pytest.approx(1 / 7, abs=0.03)
    assert held_out("anyone", {**source, "side": "held"})
    assert not held_out("anyone", {**source, "side": "train"})


def test_a_clone_that_is_missing_or_at_another_commit_is_told_in_one_line(cloned, tmp_path):
    clones, source = cloned
    assert missing(clones, [source]) == []
    assert git_folder(clones, source["repository"], "0" * 40) is None
    (line,) = missing(tmp_path, [source, source])
    assert line == (
        f"voices is missing; get it with: git clone {source['repository']} {tmp_path}/someone+voices && "
        f"git -C {tmp_path}/someone+voices checkout {source['commit']}"
    )
    assert clips(tmp_path, source) == []


def test_training_without_recordings_says_what_to_do(tmp_path):
    command = [
        sys.executable,
        "-m",
        "pipelines.embedded.train",
        "--cache",
        tmp_path / "cache",
        "--clones",
        tmp_path,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert str(tmp_path) in line
    assert "--without-people" in line


def test_every_source_names_its_licence_and_is_pinned():
    known = tomllib.loads(TABLE.read_text("utf-8"))
    for row in known["source"] + known["noise"]:
        assert row["licence"]
        assert row["credit"]
        assert len(row["commit"]) == 40
    assert len({row["id"] for row in known["source"]}) == len(known["source"])


@pytest.mark.parametrize(
    ("text", "language", "syllables"),
    [
        ("今天天气很好。", "zh-CN", 6),
        ("一会儿去那儿找儿子", "zh-CN", 7),
        ("這是什麼？", "zh-TW", 4),
        ("我有3个", "zh-CN", None),
        ("A little water.", "en", 5),
        ("WE CALL IT BEAR", "en", 4),
        ("Guten Morgen, Frau Müller", "de", 7),
        ("buenos días", "es", 4),
        ("мама мыла раму", "ru", 6),
        ("سلام", "fa", None),
        ("", "en", None),
    ],
)
def test_syllables_are_counted_where_they_can_be(text, language, syllables):
    assert count(text, language) == syllables


def test_a_pause_is_heard_in_noise_too():
    """A gap of half a second between two sentences, clean and with noise 15 dB under the voice."""
    parts = [say(text) for text in SENTENCES[:2]]
    whole = np.concatenate([parts[0], np.zeros(SAMPLE_RATE // 2, np.float32), parts[1]])
    noise = (
        np.random.default_rng(1).standard_normal(len(whole))
        * np.sqrt(np.mean(parts[0] ** 2))
        * 10 ** (-15 / 20)
    )
    for samples in (whole, (whole + noise).astype(np.float32)):
        flags = speech_frames(samples)
        middle = slice(len(parts[0]) // 160 + 12, len(parts[0]) // 160 + 38)
        assert not flags[middle].any()
        assert flags.mean() > 0.6


@pytest.mark.parametrize("way", [lambda s: mp3(s, 0.9), lambda s: opus(s, 0.95)])
def test_a_codec_changes_the_sound_and_not_the_time(way):
    samples = say(SENTENCES[0])
    heard = way(samples)
    assert heard.shape == samples.shape
    assert not np.array_equal(heard, samples)
    assert np.corrcoef(heard, samples)[0, 1] > 0.9


def test_a_telephone_takes_the_low_and_the_high():
    noise = np.random.default_rng(2).normal(0, 0.1, SAMPLE_RATE).astype(np.float32)
    power = np.abs(np.fft.rfft(telephone(noise))) ** 2
    frequency = np.fft.rfftfreq(SAMPLE_RATE, 1 / SAMPLE_RATE)
    inside = power[(frequency > 500) & (frequency < 3000)].mean()
    assert power[(frequency > 4500)].mean() < 0.01 * inside
    assert power[(frequency < 100)].mean() < 0.05 * inside


def test_every_way_keeps_the_length():
    samples = say(SENTENCES[0])
    ways = set()
    for seed in range(12):
        heard, way = passed_on(samples, random.Random(seed))
        assert heard.shape == samples.shape
        ways.add(way)
    assert ways == {"none", "mp3", "opus", "telephone"}


@pytest.fixture(scope="module")
def corpus(cloned, tmp_path_factory):
    """Shards and noise made from the clone, as training makes them."""
    clones, source = cloned
    folder = tmp_path_factory.mktemp("people")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "pipelines.embedded.people.table",
            lambda: {"source": [source], "noise": [], "filters": FILTERS},
        )
        chunks = sessions(clones, 1)
    assert all(not clip.held for chunk in chunks for clip in chunk)
    write_shard(folder, 0, chunks, FILTERS, 1)
    return folder, chunks


def test_people_become_turns_with_every_label(corpus):
    folder, _ = corpus
    rows = json.loads((folder / "00000.json").read_text())
    assert {row["natural"] for row in rows} == {True, False}
    composer = Composer(Corpus(folder), seed=1)
    turn = composer.speech(600, random.Random(3))
    assert set(turn.levels) == set(ATTRIBUTES)
    assert all(level is not None for level in turn.levels.values())
    assert turn.tracks.shape == (len(turn.mel), 3)


def test_a_rate_that_nobody_knows_is_not_learnt(corpus, tmp_path):
    """Neither the rate nor the arousal that is made from it; all other words count."""
    folder, _ = corpus
    for file in folder.iterdir():
        shutil.copy(file, tmp_path / file.name)
    rows = json.loads((tmp_path / "00000.json").read_text())
    (tmp_path / "00000.json").write_text(json.dumps([{**row, "syllables": None} for row in rows]))
    turn = Composer(Corpus(tmp_path), seed=1).speech(600, random.Random(3))
    assert [name for name, level in turn.levels.items() if level is None] == ["rate", "arousal"]
    prompted = Prompted()
    known, ids = prompted.known(turn), prompted.answer(turn)
    assert len(known) == len(ids)
    left = prompted.tokenizer.decode(ids[~known].tolist())
    assert left.count("，") == 1
    assert left.count("。") == 1
    assert known.sum() > 0.5 * len(known)


def test_noise_of_recordings_is_told_apart(cloned, corpus, tmp_path):
    clones, _ = cloned
    chunks = corpus[1]
    parts = spoken(chunks[0], FILTERS)
    assert all(flags.any() and syllables for _, flags, syllables in parts)
    write_noise(clones, tmp_path, chunks, FILTERS, random.Random(1))
    with np.load(tmp_path / "babble.npz") as babble:
        assert babble["arr_0"].shape[1] == 128


def test_clips_of_one_speaker_join_to_a_length():
    one = {"text": "今天", "syllables": 2}
    rows = [(one, np.zeros(int(2.5 * SAMPLE_RATE), np.float32)) for _ in range(8)]
    facts, samples = join(rows, 10, random.Random(1))
    assert len(samples) == 10 * SAMPLE_RATE
    assert facts["syllables"] == 8
    assert join(rows[:2], 10, random.Random(1)) is None


def test_what_is_heard_is_as_loud_as_what_was_said():
    said = raw_log_mel(say(SENTENCES[0]))
    thin = np.where(band_hz() < 600, said - 2.0, said)  # 20 dB less of the low
    both = as_loud(np.concatenate([said, thin], 1))
    levels = [10 * np.log10(frame_power(half).mean()) for half in (both[:, :128], both[:, 128:])]
    assert levels[1] == pytest.approx(levels[0], abs=0.05)
    np.testing.assert_array_equal(both[:, :128], said)


def test_weights_between_two_models_lie_between_them():
    before, after = (
        {"w": torch.zeros(3), "n": torch.tensor([1])},
        {"w": torch.ones(3), "n": torch.tensor([2])},
    )
    mixed = between(before, after, 0.25)
    torch.testing.assert_close(mixed["w"], torch.full((3,), 0.25))
    assert mixed["n"].item() == 2


def test_figures_count_what_is_known_alone():
    """An attribute that the labels or the sentence lack is no error; the bias has a sign."""
    levels = dict.fromkeys(ATTRIBUTES, 1)
    rows = [
        ({}, {**levels, "rate": None}, None),
        ({}, {**levels, "rate": 2}, None),
        ({}, {**levels, "rate": 0}, None),
    ]
    said = [levels, {**levels, "rate": 4}, {**levels, "rate": 0}]
    found = figures(rows, said)["rate"]
    assert (found["num"], found["exact"], found["within"], found["bias"]) == (2, 0.5, 0.5, 1.0)
    assert right(rows[1], said[1]) == pytest.approx(6 / 7)


def test_half_of_the_people_calibrate_and_half_check():
    halves = [half(f"person{i}") for i in range(1000)]
    assert np.mean(halves) == pytest.approx(0.5, abs=0.05)
    clip = np.zeros(7 * SAMPLE_RATE, np.float32)
    made = turns([clip] * 12, random.Random(1))
    assert made
    assert all(27 <= len(turn) / SAMPLE_RATE <= 60 for turn in made)
    assert sum(map(len, made)) <= 12 * len(clip), "no clip is in two turns"


def test_recordings_for_the_gate_are_there_when_whole(cloned, tmp_path, monkeypatch):
    """One folder; only of the wanted half of the people that are held out."""
    clones, source = cloned
    everyone = {**source, "id": SOURCES[0], "side": "held"}
    monkeypatch.setattr(people_gate, "table", lambda: {"source": [everyone], "filters": FILTERS})
    people = {f"person{i}" for i in range(8)}
    for part in (0, 1):
        people_gate.write(clones, tmp_path / str(part), part)
        chosen = [who for who in people if half(who) == part]
        num = len(list((tmp_path / str(part)).glob("short-*.wav")))
        assert 2 * len(chosen) <= num <= 3 * len(chosen)
    assert not list(tmp_path.glob("*.part"))
