"""What is heard of a turn depends on its sound alone: not on the cut, nor on what is around it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.core.audio import turn as trim
from streamer.core.audio.pcm import SAMPLE_RATE_HZ, on_grid

SECOND = SAMPLE_RATE_HZ
LEAD = trim.LEAD_SAMPLES + trim.STEP_SAMPLES  # at most


def sound(seconds, seed=0):
    noise = np.random.default_rng(seed).standard_normal(int(seconds * SECOND))
    return on_grid((0.05 * noise).astype(np.float32))


def silence(num_samples):
    return np.zeros(num_samples, np.float32)


@given(cuts=st.lists(st.integers(0, 4 * SECOND), max_size=12), noise=st.sampled_from([-90, -45]))
def test_no_cut_changes_what_is_heard(cuts, noise):
    """Half a second of a room at -74 dBFS, sound, a pause in the room, sound, the room."""
    room = on_grid((0.0002 * np.random.default_rng(1).standard_normal(4 * SECOND)).astype("f4"))
    room[SECOND // 2 : SECOND] += sound(0.5)
    room[2 * SECOND : 3 * SECOND] += sound(1, 2)
    louder = 10 ** (noise / 20) * np.random.default_rng(5).standard_normal(len(room))
    whole, one = on_grid((on_grid(room) + louder).astype(np.float32)), trim.Trim()
    heard = [one.push(piece)[0] for piece in np.split(whole, sorted(cuts))]
    heard.append(one.push(trim.NOTHING, is_last=True)[0])
    assert np.array_equal(np.concatenate(heard), trim.trimmed(whole))


@pytest.mark.parametrize("begin", [0, 7_001])
@pytest.mark.parametrize("pause", [1, 9])
@pytest.mark.parametrize("piece", [160, 30_000])
def test_a_span_is_what_is_heard_with_its_pauses_whole(begin, pause, piece):
    voice = np.concatenate([sound(1), silence(pause * SECOND), sound(1, 3)])
    turn = np.concatenate([silence(begin), voice, silence(3 * SECOND)])
    one = trim.Trim()
    given = [one.push(turn[at : at + piece])[1] for at in range(0, len(turn), piece)]
    found = np.concatenate([*given, one.push(trim.NOTHING, is_last=True)[1]])
    assert holds(found[trim.MARGIN_SAMPLES : -trim.MARGIN_SAMPLES], voice)
    assert one.span_begin == begin - int(np.flatnonzero(found)[0])


def test_a_pause_inside_is_heard_up_to_two_seconds():
    short = np.concatenate([sound(1), silence(2 * SECOND), sound(1, 3)])
    assert holds(trim.trimmed(short), short)
    for seconds in (3, 7, 70):
        long = np.concatenate([sound(1), silence(seconds * SECOND), sound(1, 3)])
        heard = np.concatenate(
            [sound(1), silence(trim.TAIL_SAMPLES + trim.MAX_PAUSE_SAMPLES), sound(1, 3)]
        )
        assert abs(len(trim.trimmed(long)) - len(trim.trimmed(heard))) <= 640


@pytest.mark.parametrize("room", [silence(30 * SECOND), sound(30) * np.float32(0.1)])
def test_without_any_sound_the_last_two_seconds_are_heard(room):
    one, room = trim.Trim(), on_grid(room)
    assert not any(map(len, one.push(room)))
    heard, span = one.push(trim.NOTHING, is_last=True)
    assert np.array_equal(span, heard)
    assert len(heard) == trim.KEPT_SAMPLES
    assert [len(trim.trimmed(room[:num])) for num in (200, 0)] == [200, 0]


def holds(heard, whole):
    """Whether it is all of it, with silence where the turn has no lead and no tail."""
    at = int(np.flatnonzero(heard)[0] - np.flatnonzero(whole)[0])
    lead, speech, tail = np.split(heard, [at, at + len(whole)])
    is_silent = not lead.any() and not tail.any()
    num_more = len(tail) - trim.TAIL_SAMPLES
    is_placed = len(lead) <= LEAD and 0 <= num_more <= trim.SOUND_SAMPLES
    return is_silent and is_placed and np.array_equal(speech, whole)


@pytest.mark.parametrize("hz", [3, 11])
def test_a_rumble_is_no_sound(hz):
    rumble = np.cos(2 * np.pi * hz * np.arange(SECOND) / SECOND).astype(np.float32) / 70
    voice = sound(2)
    lone = trim.trimmed(on_grid(np.concatenate([silence(SECOND), voice])))
    assert abs(len(trim.trimmed(on_grid(np.concatenate([rumble, voice])))) - len(lone)) <= 2560
