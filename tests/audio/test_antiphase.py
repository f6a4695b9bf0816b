"""Channels that cancel each other: one is heard alone, and nothing else of a recording changes."""

import numpy as np
import pytest

from streamer.audio.antiphase import LOOK_S, uncancelled
from streamer.audio.array import AudioArray
from streamer.recording import chunks_of

RATE = 16_000
VOICE = np.random.default_rng(0).normal(0, 0.1, RATE * 2).astype(np.float32)


def heard(channels, channel=None):
    """(16 kHz samples, the warning)."""
    audio = AudioArray(np.column_stack(channels), RATE)
    return np.concatenate(list(chunks_of(audio, channel))), audio.warning


@pytest.mark.parametrize("gain", [0.95, 0.8])
@pytest.mark.parametrize("silence_s", [0, 12])
def test_the_louder_channel_is_heard_alone_and_it_is_told(gain, silence_s):
    voice = np.concatenate([np.zeros(silence_s * RATE, np.float32), VOICE])
    found, warning = heard([-gain * voice, voice])
    assert np.array_equal(found, heard([voice, voice])[0])
    assert warning == "its two channels cancel each other; channel 1 alone was heard"


@pytest.mark.parametrize(
    "other",
    [VOICE, 0 * VOICE, np.roll(VOICE, 7), -0.5 * VOICE],
    ids=["same", "none", "late", "half"],
)
def test_channels_that_do_not_cancel_are_mixed(other):
    found, warning = heard([VOICE, other])
    assert np.abs(found - (VOICE + other) / 2).max() < 1e-4
    assert warning is None


def test_a_channel_that_was_asked_for_is_heard():
    assert heard([-VOICE, VOICE], channel=0)[1] is None


def test_no_block_is_lost_and_no_more_is_read_than_it_looks_at():
    blocks = [np.full((RATE, 2), number, np.float32) for number in range(30)]
    source = iter(blocks)
    channel, found = uncancelled(source, RATE)
    assert channel is None
    assert len(blocks) - len(list(source)) == LOOK_S + 1  # the first is silence
    assert [block[0, 0] for block in found] == list(range(int(LOOK_S) + 1))
