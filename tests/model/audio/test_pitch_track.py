"""F0 of real speech, beside noise."""

import numpy as np
import speech

from streamer.model.audio.pitch_track import MAX_HZ, MIN_HZ, PitchTrack


def track(samples):
    turn = PitchTrack()
    return np.concatenate([turn.push(samples, np.ones(len(samples) // 512, bool)), turn.finish()])


def test_noise_moves_few_frames():
    """White, 8 dB under the voice: of what is voiced with and without. Where one sample stood for
    its neighbours, too, a twentieth moved by more than 2 %."""
    moved = []
    for index in range(4):
        voice = speech.recording(index)
        noise = np.random.default_rng(index).normal(0, voice.std() * 10 ** (-8 / 20), len(voice))
        clean, noisy = track(voice), track((voice + noise).astype(np.float32))
        voiced = (clean > 0) & (noisy > 0)
        assert voiced.sum() > 80
        moved += (np.abs(noisy[voiced] / clean[voiced] - 1) > 0.02).tolist()
    assert np.mean(moved) < 0.025


def test_f0_is_in_a_voices_range():
    for index in range(4):
        f0_hz = track(speech.recording(index))
        assert ((f0_hz == 0) | ((f0_hz >= MIN_HZ) & (f0_hz <= MAX_HZ))).all()
