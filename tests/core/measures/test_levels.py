"""From measures to the chance of each level."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.core.measures import levels
from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.core.rules.settings import FLOOR

CLEAN = SpeechMeasures(
    rate_syllables_per_s=4.9,
    pitch_median_hz=140.0,
    pitch_sd_semitones=1.9,
    level_dbfs=-24.0,
    pause_share=0.09,
    timbre_db=-9.5,
    speech_s=6.0,
    audio_s=8.0,
    snr_db=50.0,
)
OURS = {name: [None] * num for name, num in levels.NUM_LEVELS.items()}
ANY = st.builds(
    SpeechMeasures,
    rate_syllables_per_s=st.none() | st.floats(0, 40),
    pitch_median_hz=st.none() | st.floats(60, 500),
    pitch_sd_semitones=st.none() | st.floats(0.1, 12),
    level_dbfs=st.none() | st.floats(-120, 0),
    pause_share=st.none() | st.floats(0, 1),
    timbre_db=st.none() | st.floats(-60, 40),
    speech_s=st.floats(0, 70),
    snr_db=st.none() | st.floats(-20, 120),
    clipped_share=st.floats(0, 1),
    dip_db=st.none() | st.floats(-25, 120),
    outside_db=st.none() | st.floats(-60, 0),
)


def assert_weights(weights):
    """The best level of each attribute has 0, the others are within bounds."""
    for each in filter(None, weights.values()):
        assert max(each) == 0
        assert min(each) >= FLOOR


def test_of_speech_without_a_pitch_none_is_said() -> None:
    whisper = replace(CLEAN, pitch_median_hz=None, pitch_sd_semitones=None)
    weights = levels.level_weights(whisper, OURS)
    assert (weights["pitch"], weights["variation"]) == ((), ())
    assert levels.level_weights(whisper, {"rate": OURS["rate"]}).keys() == {"rate"}
    assert levels.level_weights(SpeechMeasures(), OURS) == {}
    assert_weights(weights)


@given(ANY)
def test_chances_are_a_distribution_of_which_no_level_is_excluded(found) -> None:
    for name, chances in levels.level_chances(found).items():
        assert len(chances) == levels.NUM_LEVELS[name]
        assert chances.sum() == pytest.approx(1)
        assert chances.min() >= 0.99 * levels.LEAST_CHANCE / len(chances)
    assert_weights(levels.level_weights(found, OURS))


@pytest.mark.parametrize("name", levels.MEASURES)
def test_a_clean_measure_has_its_own_level_and_noise_or_little_speech_flatten_it(name) -> None:
    bounds = np.array(levels.BOUNDS[name])
    for value in (bounds[:-1] + bounds[1:]) / 2:
        chances = levels.level_chances(replace(CLEAN, **{levels.MEASURES[name][0]: float(value)}))[
            name
        ]
        assert chances.argmax() == levels.level_of(name, value)
        assert chances.max() > (0.6 if name == "rate" else 0.9)
    clean, noisy, short = (
        levels.level_chances(found)[name].max()
        for found in (CLEAN, replace(CLEAN, snr_db=0.0, dip_db=6.0), replace(CLEAN, speech_s=0.6))
    )
    assert noisy < clean + 0.01  # loudness is that of the loud frames
    assert short < clean + 0.04  # some measures need little speech


def test_a_model_counts_for_more_in_babble_but_not_in_noise_that_pauses_show() -> None:
    clean, crowded = levels.opinion_of(CLEAN), levels.opinion_of(replace(CLEAN, dip_db=10.0))
    assert (
        clean
        == levels.learnt().opinion
        == levels.opinion_of(replace(CLEAN, dip_db=10.0, snr_db=9.0))
    )
    assert {name for name in clean if crowded[name] > clean[name] + 0.5} == clean.keys() - {"rate"}
    assert crowded["rate"] == clean["rate"]
    called = levels.opinion_of(replace(CLEAN, outside_db=-50.0))  # bands are missing
    assert {n for n in clean if called[n] > clean[n]} == {"pitch", "variation", "timbre"}
