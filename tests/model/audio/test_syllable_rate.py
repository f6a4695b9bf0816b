"""The rate of a recording is that of its measures, at any sampling rate."""

import numpy as np
import pytest
import soxr
from speech import recording

import streamer
from streamer.core.audio.chunker import BadAudio
from streamer.model.audio.ear import TurnMeasurer


def measured(samples):
    measurer = TurnMeasurer()
    measurer.push(samples)
    return measurer.finish().rate_syllables_per_s


@pytest.mark.parametrize("index", [0, 1])
def test_the_rate_is_that_of_the_measures(index):
    samples = recording(index)
    assert streamer.syllable_rate(samples, 16_000) == pytest.approx(measured(samples), rel=0.02)


def test_another_sampling_rate_gives_the_same_rate():
    samples = recording(0)
    wide = soxr.resample(samples, 16_000, 44_100)
    assert streamer.syllable_rate(wide, 44_100) == pytest.approx(
        streamer.syllable_rate(samples, 16_000), rel=0.05
    )


def test_no_speech_has_no_rate():
    assert streamer.syllable_rate(np.zeros(16_000, np.float32), 16_000) is None
    assert streamer.syllable_rate(np.zeros(10, np.float32), 16_000) is None
    with pytest.raises(BadAudio):
        streamer.syllable_rate(np.full(1600, np.nan, np.float32), 16_000)
