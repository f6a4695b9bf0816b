"""What is heard of a turn depends on its sound alone: not on the cut, nor on what is around it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.core.audio.pcm import SAMPLE_RATE_HZ, on_grid
from streamer.core.audio.trim import (
    KEPT_SAMPLES,
    LEAD_SAMPLES,
    MARGIN_SAMPLES,
    MAX_PAUSE_SAMPLES,
    SOUND_SAMPLES,
    STEP_SAMPLES,
    TAIL_SAMPLES,
    Trim,
    trimmed,
)

SECOND = SAMPLE_RATE_HZ
LEAD = LEAD_SAMPLES + STEP_SAMPLES  # at most


def sound(seconds, seed=0):
    noise = np.random.default_rng(seed).standard_normal(int(seconds * SECOND))
    return on_grid((0.05 * noise).astype(np.float32))


def silence(num_samples):
    return np.zeros(num_samples, np.float32)


def quiet_voice():
    """Half a second of a room at -74 dBFS, sound, a pause in the room, sound, the room."""
    room = on_grid((0.0002 * np.random.default_rng(1).standard_normal(4 * SECOND)).astype("f4"))
    room[SECOND // 2 : SECOND] += sound(0.5)
    room[2 * SECOND : 3 * SECOND] += sound(1, 2)
    return on_grid(room)


def with_noise(samples, dbfs):
    noise = np.random.default_rng(5).standard_normal(len(samples))
    return on_grid((samples + 10 ** (dbfs / 20) * noise).astype(np.float32))


def heard_in(whole, cuts):
    trim = Trim()
    return np.concatenate([*map(trim.push, np.split(whole, sorted(cuts))), trim.finish()])


@given(cuts=st.lists(st.integers(0, 4 * SECOND), max_size=12), noise=st.sampled_from([-90, -45]))
def test_no_cut_changes_what_is_heard(cuts, noise):
    whole = with_noise(quiet_voice(), noise)
    assert np.array_equal(heard_in(whole, cuts), trimmed(whole))


@pytest.mark.parametrize("begin", [0, 7_001])
@pytest.mark.parametrize("pause", [1, 9])
@pytest.mark.parametrize("piece", [160, 30_000])
def test_a_span_is_what_is_heard_with_its_pauses_whole(begin, pause, piece):
    voice = np.concatenate([sound(1), silence(pause * SECOND), sound(1, 3)])
    turn = np.concatenate([silence(begin), voice, silence(3 * SECOND)])
    trim, given = Trim(), []
    for at in range(0, len(turn), piece):
        trim.push(turn[at : at + piece])
        given.append(trim.span())
    trim.finish()
    found = np.concatenate([*given, trim.span(is_last=True)])
    assert holds(found[MARGIN_SAMPLES:-MARGIN_SAMPLES], voice)
    assert trim.span_begin == begin - int(np.flatnonzero(found)[0])


def test_a_pause_inside_is_heard_up_to_two_seconds():
    short = np.concatenate([sound(1), silence(2 * SECOND), sound(1, 3)])
    assert holds(trimmed(short), short)
    for seconds in (3, 7, 70):
        long = np.concatenate([sound(1), silence(seconds * SECOND), sound(1, 3)])
        heard = np.concatenate([sound(1), silence(TAIL_SAMPLES + MAX_PAUSE_SAMPLES), sound(1, 3)])
        assert abs(len(trimmed(long)) - len(trimmed(heard))) <= 640


@pytest.mark.parametrize("seconds", [0.05, 2, 100])
@pytest.mark.parametrize("room_dbfs", [-200, -70])
def test_no_silence_after_a_sound_is_heard(seconds, room_dbfs):
    room = with_noise(silence(int(100.2 * SECOND)), room_dbfs)
    voice = np.concatenate([sound(1), room[: SECOND // 5]])
    after = np.concatenate([voice, room[SECOND // 5 :][: int(seconds * SECOND)]])
    assert np.array_equal(trimmed(after), trimmed(voice))
    assert np.array_equal(heard_in(after, range(0, len(after), 1_600)), trimmed(after))


@pytest.mark.parametrize("room", [silence(30 * SECOND), sound(30) * np.float32(0.1)])
def test_without_any_sound_the_last_two_seconds_are_heard(room):
    trim, room = Trim(), on_grid(room)
    trim.push(room)
    assert not len(trim.span())
    heard = trim.finish()
    assert np.array_equal(trim.span(is_last=True), heard)
    assert len(heard) == KEPT_SAMPLES
    assert [len(trimmed(room[:num])) for num in (200, 0)] == [200, 0]


def holds(heard, whole):
    """Whether it is all of it, with silence where the turn has no lead and no tail."""
    at = int(np.flatnonzero(heard)[0] - np.flatnonzero(whole)[0])
    lead, speech, tail = np.split(heard, [at, at + len(whole)])
    is_silent = not lead.any() and not tail.any()
    num_more = len(tail) - TAIL_SAMPLES
    is_placed = len(lead) <= LEAD and 0 <= num_more <= SOUND_SAMPLES
    return is_silent and is_placed and np.array_equal(speech, whole)


@pytest.mark.parametrize("hz", [3, 11])
def test_a_rumble_is_no_sound(hz):
    rumble = np.cos(2 * np.pi * hz * np.arange(SECOND) / SECOND).astype(np.float32) / 70
    voice = sound(2)
    lone = trimmed(on_grid(np.concatenate([silence(SECOND), voice])))
    assert abs(len(trimmed(on_grid(np.concatenate([rumble, voice])))) - len(lone)) <= 2560
