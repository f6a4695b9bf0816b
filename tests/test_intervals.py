"""Measures of stretches of a recording, and the files that name them; filled pauses by sound:
inserted ones are found, and read speech has few.
"""

import json

import numpy as np
import parselmouth
import pytest
import soundfile
import soxr
from parselmouth.praat import call
from people import say
from places import SAMPLES
from processes import describe, run_here
from speech import RATE_HZ, recording

import streamer
from pipelines.embedded.speak import SAMPLE_RATE, Voice, speak
from streamer import Coach, Interval, Nudge, measure_intervals, read_intervals
from streamer.config import ConfigError
from streamer.extras.coach.session import SessionCoach

SRT = "1\r\n00:00:00,500 --> 00:00:01,250\r\n<i>a b</i>\r\nc\r\n\r\n2\r\n01:00:02,000 --> 01:00:03,500\r\nd\r\n"
VTT = "WEBVTT\n\nNOTE x\n\nid\n00:00.500 --> 00:01.250 align:start\na b\nc\n\n01:00:02.000 --> 01:00:03.500\nd"
TIMED = [{"start": 0.5, "end": 1.25, "word": " a b c"}]
TIMED += [{"start": 3602, "end": 3603.5, "word": "d"}]
WHISPER = {"text": "x", "segments": [{"start": 0.5, "end": 3600, "text": " x", "words": TIMED}]}
WANTED = [Interval(0.5, 1.25, "a b c"), Interval(3602, 3603.5, "d")]


@pytest.fixture(scope="module")
def spoken():
    return recording(0), RATE_HZ


# as whisperX writes words that it could not align
UNALIGNED = [{"word": "2024"}, {"word": "a", "start": 1, "end": 2}]
UNALIGNED = {"segments": [{"start": 0, "end": 3, "words": UNALIGNED}]}


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("s.srt", SRT, WANTED),
        ("s.VTT", VTT, WANTED),
        ("s.json", json.dumps(WHISPER), WANTED),
        ("s.json", json.dumps(UNALIGNED), [Interval(1, 2, "a")]),
    ],
)
def test_files_are_read(name, text, wanted, tmp_path):
    (tmp_path / name).write_text(text, "utf-8", newline="")
    assert read_intervals(tmp_path / name) == wanted


@pytest.mark.parametrize("interval", [(1,), 5, ("a", "b"), (0, 1, 2)])
def test_what_is_no_interval_is_one_line(interval):
    with pytest.raises(ValueError, match="is no interval; give"):
        streamer.measure_intervals(SAMPLES[0], [interval])


@pytest.mark.parametrize("command", ["Save as text file", "Save as short text file"])
@pytest.mark.parametrize("words", ['say "hi"', "你好"])  # the second is UTF-16 there
def test_textgrids_of_praat_are_read(command, words, tmp_path):
    grid = call("Create TextGrid", 0.0, 4.0, "words points", "points")
    for at in (0.5, 1.25, 2.0, 3.5):
        call(grid, "Insert boundary", 1, at)
    call(grid, "Insert point", 2, 1.0, "p")
    call(grid, "Set interval text", 1, 2, words)
    call(grid, "Set interval text", 1, 4, "d")
    path = tmp_path / "s.TextGrid"
    call(grid, command, str(path))
    assert read_intervals(path) == [Interval(0.5, 1.25, words), Interval(2.0, 3.5, "d")]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("s.txt", "", "give a file in .srt"),
        ("s.srt", "hello", "holds no interval"),
        ("s.json", '{"segments": 3}', "cannot be read as .json"),
        ("s.json", "[" * 100_000, "cannot be read as .json"),
        ("s.json", '{"segments": [{"start": 0, "end": 1e999}]}', "to inf s .* is no time"),
        ("s.srt", SRT.replace("00:00:01,250", "00:00:00,250"), "ends before it begins"),
        ("s.TextGrid", 'class = "PointTier"', "cannot be read as .TextGrid"),
    ],
)
def test_a_file_that_is_none_is_one_line(name, text, told, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=told) as found:
        read_intervals(tmp_path / name)
    assert "\n" not in str(found.value)


def test_the_whole_recording_is_one_interval(spoken):
    whole = streamer.describe(spoken, mode="edge", measures=True)
    (found,) = measure_intervals(spoken, [(0, whole.audio_s)])
    assert found.rate_syllables_per_s == pytest.approx(
        whole.measures.rate_syllables_per_s, abs=0.05
    )
    assert found.pitch_median_hz == pytest.approx(whole.measures.pitch_median_hz)
    assert found.level_dbfs == pytest.approx(whole.measures.level_dbfs)


def test_an_interval_hears_itself_alone(spoken):
    """The second half is 12 dB softer, and says so."""
    samples, rate = spoken
    middle = len(samples)
    both = np.concatenate([samples, samples / 4])
    cut_s, end_s = middle / rate, len(both) / rate
    loud, soft, nothing = measure_intervals(
        (both, rate), [(0, cut_s), Interval(cut_s, end_s), (1, 1)]
    )
    assert loud.level_dbfs - soft.level_dbfs == pytest.approx(12, abs=0.5)
    assert loud.pitch_median_hz == pytest.approx(soft.pitch_median_hz, rel=0.02)
    assert nothing.level_dbfs is None


def test_the_command_shows_a_row_for_each(tmp_path):
    (tmp_path / "s.vtt").write_text("00:00.000 --> 00:01.500\nyes\n\n00:01.500 --> 00:02.500\nno\n")
    words = (SAMPLES[0], "--mode", "edge", "--intervals", tmp_path / "s.vtt")
    _, (_, rows), _ = describe(*words)
    assert [row["text"] for row in rows["intervals"]] == ["yes", "no"]
    assert rows["intervals"][0]["measures"]["pitch_median_hz"] > 0
    _, yes, no = run_here("describe", *words)[1].splitlines()
    assert (yes.startswith("  0.00-1.50 s"), no.endswith("no")) == (True, True)
    status, _, err = run_here("describe", SAMPLES[1], *words)
    assert (status, "is of one recording; 2 are given" in err) == (2, True)


PAUSE = np.zeros(SAMPLE_RATE // 4, np.float32)


def falling(samples, hz, fall=2):
    """The same on a pitch of `hz` that falls by `fall` semitones, as people's mostly does."""
    sound = parselmouth.Sound(samples.astype(float), SAMPLE_RATE)
    whole = call(sound, "To Manipulation", 0.01, 60, 500)
    pitch = call("Create PitchTier", "pitch", 0, sound.duration)
    call(pitch, "Add point", 0, hz)
    call(pitch, "Add point", sound.duration, hz * 2 ** (-fall / 12))
    call([pitch, whole], "Replace pitch tier")
    return call(whole, "Get resynthesis (overlap-add)").values[0]


@pytest.fixture(scope="module")
def hesitant():
    """(samples, where "um" begins and ends) of six voices, each with one between two sentences."""
    found = []
    for variant in ("m1", "m3", "m5", "f1", "f2", "f4"):
        first, second = (say(text, variant) for text in ("今天天气很好", "我们一起去公园"))
        usual = streamer.measure_intervals((first, SAMPLE_RATE), [(0, 9)])[0].pitch_median_hz
        um = speak(Voice("espeak", "en", variant), "um", wpm=90)
        um = falling(um[: np.flatnonzero(np.abs(um) > 0.01)[-1]] * 0.3, 0.9 * usual)
        parts = [first, PAUSE, um, PAUSE, second]
        begin = sum(map(len, parts[:2])) / SAMPLE_RATE
        samples = np.concatenate(parts).astype(np.float32)
        found.append((samples, begin, begin + len(um) / SAMPLE_RATE))
    return found


def test_most_of_those_that_were_inserted_are_found(hesitant):
    hits = others = 0
    for samples, begin, end in hesitant:
        for a, b in streamer.filled_pauses((samples, SAMPLE_RATE)).times_s:
            is_hit = a < end and b > begin
            hits, others = hits + is_hit, others + (not is_hit)
    assert hits >= 4
    assert others <= 1


def test_a_recording_cut_otherwise_or_louder_says_the_same(hesitant, tmp_path):
    samples = np.concatenate([each for each, _, _ in hesitant])
    soundfile.write(tmp_path / "s.wav", samples, SAMPLE_RATE, subtype="FLOAT")
    whole = streamer.filled_pauses((samples, SAMPLE_RATE))
    assert streamer.filled_pauses(tmp_path / "s.wav") == whole
    softer = streamer.filled_pauses((samples / 2, SAMPLE_RATE)).times_s
    assert np.array(softer) == pytest.approx(np.array(whole.times_s), abs=0.05)
    minutes = len(samples) / SAMPLE_RATE / 60
    assert "np." not in repr(whole)
    assert whole.per_min == pytest.approx(len(whole) / minutes, rel=0.1)
    assert streamer.filled_pauses((samples * 0, SAMPLE_RATE)).per_min is None


def test_a_coach_that_was_asked_to_says_it_soon_after_the_third(hesitant):
    samples = soxr.resample(np.concatenate([each for each, _, _ in hesitant]), SAMPLE_RATE, 16_000)
    lengths = [len(each) / SAMPLE_RATE for each, _, _ in hesitant]
    ends = [sum(lengths[:i]) + end for i, (_, _, end) in enumerate(hesitant)]

    def nudges(**options):
        coach = SessionCoach(Coach(breath_s=0, **options))
        found = []
        for at in range(0, len(samples), 3_200):
            coach.push(samples[at : at + 3_200])
            found += coach.work()
        return [e for e in found if isinstance(e, Nudge) and e.kind == "filled_pauses"]

    (nudge,) = nudges(filled_per_min=3)
    assert (nudge.measure, nudge.value, nudge.usual) == ("filled_pauses_per_min", 3, None)
    assert any(0 < nudge.t_s - end < 1.2 for end in ends[2:5])
    assert nudges() == []


def test_the_command_shows_them():
    words = ("--mode", "edge", "--filled-pauses")
    _, (_, row), _ = describe(SAMPLES[0], *words)
    assert row["filled_pauses"] == streamer.filled_pauses(SAMPLES[0]).as_json()
    shown = run_here("describe", SAMPLES[0], *words)[1]
    assert shown.splitlines()[1].startswith("  填充停顿：")
    status, _, err = run_here("describe", "-", *words)
    assert (status, "give a file" in err) == (2, True)
