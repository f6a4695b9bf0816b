"""Voices say the syllables that their text has: the labels of rate rest on it."""

import random

import numpy as np
import pytest

from pipelines.embedded.speak import Voice, phrase, speak
from streamer.model.audio.ear import measure


@pytest.mark.parametrize(
    ("language", "variant"), [("cmn", "f4"), ("cmn", "m3"), ("en-us", "m3"), ("es", "f2")]
)
def test_a_voice_says_about_as_many_syllables_as_its_text_has(language, variant):
    """Measured on the sound. A syllable read as two, as of spelt pinyin, counts double."""
    texts = [phrase(language, 16, random.Random(seed)) for seed in range(6)]
    said = 0.0
    for text, _ in texts:
        found = measure(speak(Voice("espeak", language, variant), text, wpm=150).astype(np.float32))
        said += found.rate_syllables_per_s * found.speech_s
    assert 0.65 < said / sum(num for _, num in texts) < 1.35
