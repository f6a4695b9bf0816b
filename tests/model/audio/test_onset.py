"""Voice activity that begins anew at the speech: the same for every cut, and in noise before it."""

import numpy as np
import pytest
from speech import RATE_HZ, cuts, recording, speech

from streamer.core.audio.trim import Span, Trim
from streamer.model.audio.vad import GRID_SAMPLES, TurnVoice


def noise(seconds, dbfs, seed=0):
    """Pink noise."""
    num = int(seconds * RATE_HZ)
    if not num:
        return np.zeros(0, np.float32)
    spectrum = np.fft.rfft(np.random.default_rng(seed).standard_normal(num))
    found = np.fft.irfft(spectrum * np.maximum(np.arange(len(spectrum)), 50) ** -0.5, num)
    return (found / found.std() * 10 ** (dbfs / 20)).astype(np.float32)


def heard(samples, places=None):
    """Samples and frames of a turn, and what is known of it at the end."""
    voice, found, frames = TurnVoice(), [], []
    for place in places or [slice(None)]:
        kept, new = voice.hear(samples[place])
        found.append(kept)
        frames += new
    kept, new = voice.hear(samples[:0], is_last=True)
    facts = (voice.begin, voice.has_speech, voice.last_speech_sample)
    return np.concatenate([*found, kept]), [*frames, *new], facts


def in_turn(samples):
    """The frames of a turn between its first sound and its last, and the sample where they begin."""
    trim = Trim()
    trim.push(samples)
    trim.finish()
    span = Span(trim)
    voice = TurnVoice()
    _, frames = voice.hear(np.concatenate([span.push(samples), span.finish()]), is_last=True)
    assert voice.has_speech
    return frames, span.begin + voice.begin


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("before_s", [0, 0.3, 6])
def test_streamed_equals_whole(before_s, seed):
    voices = [speech(2 + seed, seed), noise(1, -40, seed), np.zeros(900, np.float32)]
    samples = np.concatenate([noise(before_s, -45, seed), voices[seed % 3]])
    whole, frames, facts = heard(samples)
    cut, cut_frames, cut_facts = heard(samples, cuts(len(samples), seed))
    assert np.array_equal(cut, whole)
    assert (cut_frames, cut_facts) == (frames, facts)
    assert np.array_equal(whole[GRID_SAMPLES:], samples[facts[0] + GRID_SAMPLES :])
    assert (len(frames) > 0) is (seed % 3 == 0)


@pytest.mark.parametrize("index", [1, 2])
@pytest.mark.parametrize("under_db", [20, 30, 40])
def test_noise_before_people_moves_no_frame(index, under_db):
    samples = recording(index)
    lead = noise(5.0137, 20 * np.log10(samples.std()) - under_db, index)
    frames, begin = in_turn(samples)
    later, found_begin = in_turn(np.concatenate([lead, samples]))
    moved = len(lead) + begin - found_begin
    assert moved % GRID_SAMPLES == 0
    spoken = {f.start_sample + moved for f in frames if f.probability >= 0.5}
    assert spoken == {f.start_sample for f in later if f.probability >= 0.5}
