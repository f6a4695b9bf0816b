"""Levels by measures alone: the bounds, and what is unknown where a recording is spoilt."""

from dataclasses import replace

import pytest

from streamer.core.attributes import ATTRIBUTES
from streamer.core.measures.levels import BOUNDS, MEASURES, NUM_LEVELS, levels_of
from streamer.core.measures.speech_measures import SpeechMeasures

PLAIN = SpeechMeasures(
    rate_syllables_per_s=4.9,
    pitch_median_hz=160.0,
    pitch_sd_semitones=1.75,
    level_dbfs=-29.5,
    pause_share=0.1,
    timbre_db=-9.5,
    speech_s=3.0,
    audio_s=4.0,
    snr_db=30.0,
)


def unknown(found):
    return {name for name, level in levels_of(found).items() if level is None}


def test_an_ordinary_voice_has_the_middle_levels():
    middle = dict(zip(ATTRIBUTES, (2, 1, 1, 1, 1, 1, 1), strict=True))
    assert levels_of(PLAIN) == middle
    assert tuple(BOUNDS) == ATTRIBUTES


@pytest.mark.parametrize("name", MEASURES)
def test_each_bound_parts_two_levels(name):
    for level, bound in enumerate(BOUNDS[name]):
        below = levels_of(replace(PLAIN, **{MEASURES[name]: bound - 1e-6}))
        above = levels_of(replace(PLAIN, **{MEASURES[name]: bound + 1e-6}))
        assert (below[name], above[name]) == (level, level + 1)
    assert NUM_LEVELS[name] == len(BOUNDS[name]) + 1


@pytest.mark.parametrize(
    ("spoilt", "lost"),
    [
        ({"snr_db": 9.0}, {"rate", "variation", "pauses", "timbre", "arousal"}),
        ({"clipped_share": 0.01}, {"loudness", "timbre", "arousal"}),
        ({"speech_s": 1.4}, set(ATTRIBUTES)),
        ({"pitch_median_hz": None, "pitch_sd_semitones": None}, {"pitch", "variation", "arousal"}),
        ({"rate_syllables_per_s": 1.2}, {"rate", "arousal"}),
        ({"snr_db": None}, set()),
    ],
)
def test_what_spoils_a_recording_takes_its_levels(spoilt, lost):
    assert unknown(replace(PLAIN, **spoilt)) == lost
