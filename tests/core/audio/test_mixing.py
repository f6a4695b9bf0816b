"""One channel of several: as loud as the speech, whatever the other channels hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.audio.array import AudioArray
from streamer.core.audio.chunker import Mixer
from streamer.recording import chunks_of

RATE = 16_000
VOICE = np.random.default_rng(0).normal(0, 0.1, 2 * RATE).astype(np.float32)
OTHER = np.random.default_rng(1).normal(0, 0.1, 2 * RATE).astype(np.float32)
NONE = 0 * VOICE


def mixed(*channels: np.ndarray) -> tuple[np.ndarray, str | None]:
    mixer = Mixer(len(channels), RATE)
    found = np.concatenate([mixer.push(np.column_stack(channels)), mixer.finish()])
    return found, mixer.told()


def db_off(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(20 * np.log10(found.std() / wanted.std()))


@given(st.lists(st.integers(0, len(VOICE)), max_size=8))
def test_no_cut_changes_a_bit(cuts) -> None:
    frames = np.column_stack([VOICE, 0.3 * OTHER, -VOICE])
    mixer = Mixer(3, RATE)
    pieces = [mixer.push(piece) for piece in np.split(frames, sorted(cuts))]
    assert np.array_equal(np.concatenate([*pieces, mixer.finish()]), mixed(*frames.T)[0])


@pytest.mark.parametrize("num", [1, 2, 6])
def test_equal_channels_are_as_loud_as_one(num) -> None:
    found, told = mixed(*[VOICE] * num)
    assert np.abs(found - VOICE).max() < 1e-6
    assert told is None


@pytest.mark.parametrize("at", range(6))
def test_silent_channels_take_nothing_and_are_told(at) -> None:
    found, told = mixed(*[VOICE if i == at else NONE for i in range(6)])
    assert np.array_equal(found, VOICE)
    assert told is not None
    assert "hold no sound" in told
    assert mixed(VOICE, NONE)[1] == "channel 1 holds no sound"


@pytest.mark.parametrize("ambience", [0.03, 0.1])
def test_ambience_in_five_channels_leaves_the_level_of_the_voice(ambience) -> None:
    channels = [ambience * np.roll(OTHER, 99 * i) for i in range(6)]
    channels[2] = channels[2] + VOICE
    assert abs(db_off(mixed(*channels)[0], VOICE)) < 1


def test_two_speakers_on_two_channels_are_both_heard() -> None:
    left = np.concatenate([VOICE, NONE])
    right = np.concatenate([NONE, OTHER])
    found, _ = mixed(left, right)
    assert abs(db_off(found[: 2 * RATE], VOICE)) < 0.1
    assert abs(db_off(found[2 * RATE + RATE // 2 :], OTHER[RATE // 2 :])) < 0.5


@pytest.mark.parametrize("gain", [1.0, 0.95, 0.8])
@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize("silence_s", [0, 12])
def test_of_channels_that_cancel_the_strongest_is_heard_alone(gain, others, silence_s) -> None:
    voice = np.concatenate([np.zeros(silence_s * RATE, np.float32), VOICE])
    found, told = mixed(gain * voice, -voice, *[0 * voice] * others)
    strongest = 0 if gain == 1.0 else 1
    assert np.array_equal(np.abs(found), np.abs(voice))
    assert told == f"its channels cancel each other; channel {strongest} alone was heard"


@pytest.mark.parametrize("other", [np.roll(VOICE, 7), -0.5 * VOICE, OTHER])
def test_channels_that_do_not_cancel_are_mixed(other) -> None:
    found, told = mixed(VOICE, other)
    assert told is None
    assert -4 < db_off(found, VOICE) < 1


def test_a_recording_tells_what_was_not_heard() -> None:
    audio = AudioArray(np.column_stack([VOICE, -VOICE]), RATE)
    assert np.concatenate(list(chunks_of(audio))).std() == pytest.approx(VOICE.std(), rel=1e-3)
    assert audio.warning == "its channels cancel each other; channel 0 alone was heard"
    alone = AudioArray(np.column_stack([VOICE, -VOICE]), RATE)
    list(chunks_of(alone, 0))
    assert alone.warning is None
