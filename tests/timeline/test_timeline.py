"""`describe --timeline`: JSON, captions, a TextGrid, a picture; of the channels of a call, too. Measures
of stretches of a recording, and the files that name them. Filled pauses by sound: inserted ones are
found, and read speech has few.
"""

import json
from dataclasses import replace

import jsonschema
import numpy as np
import parselmouth
import pytest
import soundfile
import soxr
import webvtt
from matplotlib import font_manager, image
from parselmouth.praat import call as praat
from people import say
from places import ROOT, SAMPLES
from processes import describe, run_here
from speech import RATE_HZ, recording, speech

import streamer
from pipelines.embedded.speak import SAMPLE_RATE, Voice, speak
from streamer import Coach, Interval, Nudge, measure_intervals, read_intervals, write_timeline
from streamer.cli import main
from streamer.config import ConfigError
from streamer.extras.coach.session import SessionCoach
from streamer.timeline import chinese_fonts

SCHEMA = json.loads((ROOT / "docs/timeline.schema.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def found(samples):
    return streamer.describe(samples[1], mode="edge")


def test_json_and_captions_of_a_recording(found, tmp_path):
    for kind in ("json", "vtt"):
        assert write_timeline(found, tmp_path / f"s.{kind}") is None
    row = json.loads((tmp_path / "s.json").read_text("utf-8"))
    jsonschema.validate(row, SCHEMA)
    (turn,) = row["turns"]
    assert turn["text"] == found.text
    assert turn["measures"] == json.loads(json.dumps(found.measures.as_json()))
    assert len(row["f0_hz"]) == len(row["level_dbfs"]) == round(found.measures.audio_s * 100)
    assert len(row["pauses"]) == found.measures.pause_count > 0
    longest = max(each["end_s"] - each["start_s"] for each in row["pauses"])
    assert longest == pytest.approx(found.measures.longest_pause_s, abs=1e-3)
    voiced = [hz for hz in row["f0_hz"] if hz is not None]
    assert np.median(voiced) == pytest.approx(found.measures.pitch_median_hz, rel=0.05)
    (cue,) = webvtt.read(tmp_path / "s.vtt").captions
    assert cue.raw_text.splitlines()[0] == found.text.strip()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.json", "s.vtt"]


def test_praat_reads_the_tiers(found, tmp_path):
    """A quote in a sentence is doubled."""
    assert write_timeline(replace(found, text='so "loud"'), tmp_path / "s.TextGrid") is None
    grid = parselmouth.read(str(tmp_path / "s.TextGrid"))
    assert praat(grid, "Get number of tiers") == 3

    def labels(tier):
        places = range(1, 1 + praat(grid, "Get number of intervals", tier))
        return [praat(grid, "Get label of interval", tier, i) for i in places]

    speech, sentence = labels(1), labels(3)
    num_pauses = found.measures.pause_count
    assert (speech.count("pause"), speech.count("speech")) == (num_pauses, num_pauses + 1)
    assert 'so "loud"' in sentence
    assert praat(grid, "Get total duration") == pytest.approx(found.audio_s, abs=1e-3)
    num = praat(grid, "Get number of points", 2)
    wanted = found.measures.rate_syllables_per_s * found.measures.speech_s
    assert num == pytest.approx(wanted, abs=1)
    times = [praat(grid, "Get time of point", 2, i + 1) for i in range(num)]
    assert times == sorted(set(times))


def test_a_long_recording_has_its_parts_one_after_the_other(tiny_models):
    voice = speech(70, 3)
    found = streamer.describe((voice, RATE_HZ), mode="edge", **tiny_models)
    assert len(found.parts) == 2
    timeline = found.timeline
    assert [turn.start_s for turn in timeline.turns] == [0, 60]
    assert timeline.turns[1].end_s == timeline.duration_s == pytest.approx(70)
    assert len(timeline.curves) == 7_000
    alone = streamer.describe((voice[60 * RATE_HZ :], RATE_HZ), mode="edge", **tiny_models)
    # The filter of 0 Hz knows 256 ms more of the sound before: few frames differ by a hertz.
    off = np.abs(timeline.curves.f0_hz[6_000:] - alone.timeline.curves.f0_hz)
    assert (off < 1).mean() > 0.98
    assert "curves" not in found.as_json()


def test_a_picture_has_the_sentence_if_a_font_has_it(monkeypatch, found, tmp_path):
    """On a machine whose fonts have no Chinese characters."""
    kept = [font for font in font_manager.fontManager.ttflist if font.name == "DejaVu Sans"]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", kept)

    def dark(sentence):
        told = write_timeline(replace(found, text=sentence), tmp_path / "s.png")
        drawn = image.imread(tmp_path / "s.png")
        assert (drawn.shape[1], drawn.shape[2]) == (1320, 4)
        return told, (drawn[-60:, :, :3] < 0.5).all(2).sum()

    assert chinese_fonts() == []
    told, without = dark(found.text)
    assert "no font here has the sentences' characters" in told
    none, with_sentence = dark("The speaker is slow, deep and calm.")
    assert none is None
    assert with_sentence > without + 200


def test_a_failed_write_leaves_nothing(tmp_path, found):
    (tmp_path / "s.json").mkdir()
    with pytest.raises(ConfigError, match="cannot be written there"):
        write_timeline(found, tmp_path / "s.json")
    with pytest.raises(TypeError):
        write_timeline(replace(found, attributes={"rate": object()}), tmp_path / "t.json")
    plain = replace(found, measures=None, curves=None)
    assert plain.timeline is None
    with pytest.raises(ValueError, match="describe it with measures=True"):
        write_timeline(plain, tmp_path / "u.json")
    with pytest.raises(ValueError, match="no description is given"):
        write_timeline([], tmp_path / "u.json")
    assert [path.name for path in tmp_path.iterdir()] == ["s.json"]


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """The first speaks, then the second, 3 s after the end of the first recording."""
    (first, rate), (second, _) = (soundfile.read(SAMPLES[i], dtype="int16") for i in (0, 1))
    begin = len(first) + 3 * rate
    sound = np.zeros((begin + len(second), 2), np.int16)
    sound[: len(first), 0] = first
    sound[begin:, 1] = second
    path = tmp_path_factory.mktemp("calls") / "call.wav"
    soundfile.write(path, sound, rate)
    return path


def test_the_command_tells_the_call_and_its_timeline(call, tmp_path, capsys):
    words = ["describe", str(call), "--channels", "apart", "--mode", "edge", "--json"]
    timeline = tmp_path / "s.json"
    assert main([*words, "--measures", "--jobs", "2", "--timeline", str(timeline)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (whole,) = [row for row in rows if "conversation" in row]
    texts = {row["channel"]: row["text"] for row in rows if "text" in row}
    found = whole["conversation"]
    assert whole["file"] == str(call)
    assert (found["turns"], found["interruptions"]) == ([1, 1], [0, 0])
    assert found["gap_median_s"] == pytest.approx(3, abs=1)
    assert sum(found["talk_share"]) == pytest.approx(1, abs=0.01)
    told = json.loads(timeline.read_text("utf-8"))
    jsonschema.validate(told, SCHEMA)
    assert [each["channel"] for each in told["channels"]] == [0, 1]
    assert [each["turns"][0]["text"] for each in told["channels"]] == [texts[0], texts[1]]
    assert all(any(each["f0_hz"]) for each in told["channels"])
    assert told["conversation"] == found
    (dead,) = told["between"]
    assert dead["kind"] == "dead air"
    assert dead["end_s"] - dead["start_s"] == pytest.approx(found["dead_air_s"], abs=0.01)
    assert main(words) == 0  # without measures there is none
    assert all("conversation" not in row for row in capsys.readouterr().out.splitlines())


def test_other_kinds_hold_both_channels_too(call, tmp_path):
    """Overlap: the same channels, the second one moved to 1 s after the first one's begin."""
    both, rate = soundfile.read(call, dtype="float32")
    both[:, 1] = np.roll(both[:, 1], rate - np.flatnonzero(both[:, 1])[0])
    channels = [streamer.describe((both, rate), mode="edge", channel=i) for i in (0, 1)]
    for kind in ("TextGrid", "vtt"):
        streamer.write_timeline(channels, tmp_path / f"s.{kind}")
    grid = parselmouth.read(str(tmp_path / "s.TextGrid"))
    names = [praat(grid, "Get tier name", i + 1) for i in range(7)]
    tiers = ("speech", "syllables", "sentence")
    assert names == [*(f"{name} {i}" for i in (0, 1) for name in tiers), "between"]
    shared = sum(
        praat(grid, "Get end time of interval", 7, i + 1)
        - praat(grid, "Get start time of interval", 7, i + 1)
        for i in range(praat(grid, "Get number of intervals", 7))
        if praat(grid, "Get label of interval", 7, i + 1) == "overlap"
    )
    share = shared / praat(grid, "Get total duration")
    assert 0.05 < share < streamer.conversation(channels).overlap_share
    cues = webvtt.read(tmp_path / "s.vtt").captions
    assert [cue.voice for cue in cues] == ["channel 0", "channel 1"]


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
        *(("s.srt", SRT, WANTED), ("s.VTT", VTT, WANTED)),
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
    grid = praat("Create TextGrid", 0.0, 4.0, "words points", "points")
    for at in (0.5, 1.25, 2.0, 3.5):
        praat(grid, "Insert boundary", 1, at)
    praat(grid, "Insert point", 2, 1.0, "p")
    praat(grid, "Set interval text", 1, 2, words)
    praat(grid, "Set interval text", 1, 4, "d")
    path = tmp_path / "s.TextGrid"
    praat(grid, command, str(path))
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
    wanted = whole.measures.rate_syllables_per_s
    assert found.rate_syllables_per_s == pytest.approx(wanted, abs=0.05)
    assert found.pitch_median_hz == pytest.approx(whole.measures.pitch_median_hz)
    assert found.level_dbfs == pytest.approx(whole.measures.level_dbfs)


def test_an_interval_hears_itself_alone(spoken):
    """The second half is 12 dB softer, and says so."""
    samples, rate = spoken
    middle, both = len(samples), np.concatenate([samples, samples / 4])
    cut_s, end_s = middle / rate, len(both) / rate
    spans = [(0, cut_s), Interval(cut_s, end_s), (1, 1)]
    loud, soft, nothing = measure_intervals((both, rate), spans)
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
    whole = praat(sound, "To Manipulation", 0.01, 60, 500)
    pitch = praat("Create PitchTier", "pitch", 0, sound.duration)
    praat(pitch, "Add point", 0, hz)
    praat(pitch, "Add point", sound.duration, hz * 2 ** (-fall / 12))
    praat([pitch, whole], "Replace pitch tier")
    return praat(whole, "Get resynthesis (overlap-add)").values[0]


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
        coach, found = SessionCoach(Coach(breath_s=0, **options)), []
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
