"""Steps of loudness, tempo and melody: however they are cut, whatever the gain."""

import hashlib
import itertools
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.extras.coach import session
from streamer.extras.coach.network import (
    FORM,
    NUM_BANDS,
    STEP_FRAMES,
    STEPS_PER_S,
    WEIGHTS,
    Steps,
    Voice,
    in_bands,
)
from streamer.extras.coach.options import Coach
from streamer.extras.coach.session import STEP_SAMPLES, SessionCoach
from streamer.model.audio.ear import SoundTrack
from streamer.model.audio.vad import VoiceActivity

SAMPLE = Path(__file__).parents[3] / "samples" / "plain.wav"


@pytest.fixture(scope="module")
def samples():
    held, rate = soundfile.read(SAMPLE, dtype="float32")
    assert rate == SAMPLE_RATE_HZ
    return np.tile(held, 6)


@pytest.fixture(scope="module")
def spoken(samples):
    """Steps of a recording, and where somebody speaks."""
    track, voice, bands = SoundTrack(), VoiceActivity(), []
    for at in range(0, len(samples) - STEP_SAMPLES + 1, STEP_SAMPLES):
        piece = samples[at : at + STEP_SAMPLES]
        bands.append(in_bands(track.add(piece, voice.push(piece))))
    num = track.num_pitched // STEP_FRAMES * STEP_FRAMES
    frames = track.frames().until(num)
    steps = Steps.of(np.concatenate(bands)[:num], frames.level_db, frames.f0)
    return steps, frames.speech.reshape(-1, STEP_FRAMES).all(1)


def test_a_session_hears_the_same_and_goes_on_when_it_forgets(samples, spoken, monkeypatch):
    """Bands, level and speech belong to the same frames; F0 may change where it ends."""
    kept = []

    class Watched(Voice):
        def push(self, steps, speech):
            kept.append((steps, speech))
            return super().push(steps, speech)

    monkeypatch.setattr(session, "Voice", Watched)
    ear = SessionCoach(Coach())
    for at in range(0, len(samples), 777):
        ear.push(samples[at : at + 777])
        if at % 3 == 0:
            ear.work()
    ear.work()
    steps, speech = spoken
    num = min(sum(len(flags) for _, flags in kept), len(speech))
    assert num > 15 * STEPS_PER_S  # it has forgotten by then
    live = [np.concatenate(each)[:num] for each in zip(*(steps for steps, _ in kept), strict=True)]
    assert np.array_equal(live[0], steps.bands[:num])
    assert np.array_equal(live[1], steps.level_db[:num])
    assert np.array_equal(np.concatenate([f for _, f in kept])[:num], speech[:num])
    assert np.mean(live[3] == steps.voiced[:num]) > 0.97


def test_new_weights_have_a_new_form():
    """Raise FORM in network.py, then write both here: older baselines are refused."""
    digest = hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()[:12]
    assert (FORM, digest) == (5, "9abc903b96cf")


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.lists(st.integers(1, 79), max_size=8, unique=True))
def test_the_same_for_every_cut(seed, cuts):
    chance = np.random.default_rng(seed)
    steps = Steps.of(
        chance.uniform(-90, -10, (160, NUM_BANDS)).astype(np.float32),
        chance.uniform(-70, -10, 160).astype(np.float32),
        chance.choice([0, 0, 100, 140, 300], 160).astype(np.float32),
    )
    speech = chance.random(80) > 0.3
    whole, voice = Voice().push(steps, speech), Voice()
    ends = [0, *sorted(cuts), 80]
    slices = [slice(a, b) for a, b in itertools.pairwise(ends)]
    parts = [voice.push(steps.at(each), speech[each]) for each in slices]
    for name in ("loudness", "tempo", "melody", "trust"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        assert np.allclose(joined, getattr(whole, name), atol=1e-3)


def test_a_gain_moves_loudness_alone_and_tempo_is_in_octaves(spoken):
    """Every other step left out is twice as fast, each step twice is half as fast."""
    steps, speech = spoken
    usual = Voice().push(steps, speech)
    softer = {"bands": steps.bands - np.float32(12), "level_db": steps.level_db - np.float32(12)}
    soft = Voice().push(steps._replace(**softer), speech)
    assert np.allclose(soft.loudness, usual.loudness - 12, atol=1e-2)
    assert np.allclose(soft.tempo, usual.tempo, atol=1e-3)
    assert np.allclose(soft.melody, usual.melody, atol=1e-3)
    num = len(speech)
    for which, octaves in ((np.arange(0, num, 2), 1), (np.repeat(np.arange(num), 2), -1)):
        changed = Voice().push(steps.at(which), speech[which])
        assert 0.4 < octaves * (changed.tempo.mean() - usual.tempo.mean()) < 1.6
