"""Filled pauses by sound: inserted ones are found, and read speech has few."""

import numpy as np
import parselmouth
import pytest
import soundfile
import soxr
from parselmouth.praat import call
from people import say
from places import SAMPLES
from processes import describe, run_here

import streamer
from pipelines.embedded.speak import SAMPLE_RATE, Voice, speak
from streamer import Coach, Nudge
from streamer.extras.coach.session import SessionCoach

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
def spoken():
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


def test_most_of_those_that_were_inserted_are_found(spoken):
    hits = others = 0
    for samples, begin, end in spoken:
        for a, b in streamer.filled_pauses((samples, SAMPLE_RATE)).times_s:
            is_hit = a < end and b > begin
            hits, others = hits + is_hit, others + (not is_hit)
    assert hits >= 4
    assert others <= 1


def test_a_recording_cut_otherwise_or_louder_says_the_same(spoken, tmp_path):
    samples = np.concatenate([each for each, _, _ in spoken])
    soundfile.write(tmp_path / "s.wav", samples, SAMPLE_RATE, subtype="FLOAT")
    whole = streamer.filled_pauses((samples, SAMPLE_RATE))
    assert streamer.filled_pauses(tmp_path / "s.wav") == whole
    softer = streamer.filled_pauses((samples / 2, SAMPLE_RATE)).times_s
    assert np.array(softer) == pytest.approx(np.array(whole.times_s), abs=0.05)
    minutes = len(samples) / SAMPLE_RATE / 60
    assert "np." not in repr(whole)
    assert whole.per_min == pytest.approx(len(whole) / minutes, rel=0.1)
    assert streamer.filled_pauses((samples * 0, SAMPLE_RATE)).per_min is None


def test_a_coach_that_was_asked_to_says_it_soon_after_the_third(spoken):
    samples = soxr.resample(np.concatenate([each for each, _, _ in spoken]), SAMPLE_RATE, 16_000)
    lengths = [len(each) / SAMPLE_RATE for each, _, _ in spoken]
    ends = [sum(lengths[:i]) + end for i, (_, _, end) in enumerate(spoken)]

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
