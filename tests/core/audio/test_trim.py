"""What is heard of a turn depends on its sound alone: not on the cut, nor on the silence around."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.core.audio.pcm import SAMPLE_RATE_HZ, on_grid
from streamer.core.audio.trim import (
    KEPT_SAMPLES,
    LEAD_SAMPLES,
    MAX_PAUSE_SAMPLES,
    TAIL_SAMPLES,
    Trim,
    trimmed,
)

SECOND = SAMPLE_RATE_HZ


def sound(seconds: float, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal(int(seconds * SECOND))
    return on_grid((0.05 * noise).astype(np.float32))


def silence(num_samples: int) -> np.ndarray:
    return np.zeros(num_samples, np.float32)


def quiet_voice() -> np.ndarray:
    """Half a second of a room at -74 dBFS, sound, a pause in the room, sound, the room."""
    room = on_grid((0.0002 * np.random.default_rng(1).standard_normal(4 * SECOND)).astype("f4"))
    room[SECOND // 2 : SECOND] += sound(0.5)
    room[2 * SECOND : 3 * SECOND] += sound(1, 2)
    return on_grid(room)


@given(cuts=st.lists(st.integers(0, 4 * SECOND), max_size=12))
def test_no_cut_changes_what_is_heard(cuts: list[int]) -> None:
    whole = quiet_voice()
    trim = Trim()
    pieces = [trim.push(piece) for piece in np.split(whole, sorted(cuts))]
    assert np.array_equal(np.concatenate([*pieces, trim.finish()]), trimmed(whole))


@pytest.mark.parametrize("before", [1, 37, 139, 160, SECOND, 5 * SECOND + 11])
@pytest.mark.parametrize("behind", [0, 1, SECOND, 2 * SECOND - TAIL_SAMPLES])
def test_silence_around_a_sound_is_not_heard(before: int, behind: int) -> None:
    voice = quiet_voice()[
        : 3 * SECOND + TAIL_SAMPLES + 400
    ]  # a stretch may end 20 ms behind the sound
    around = np.concatenate([silence(before), voice, silence(behind)])
    assert np.array_equal(trimmed(around), trimmed(voice))


def test_it_begins_before_the_first_sound_and_ends_behind_the_last() -> None:
    voice = quiet_voice()
    heard = trimmed(voice)
    begin, end = SECOND // 2, 3 * SECOND
    at = next(i for i in range(begin) if np.array_equal(voice[i : i + 400], heard[:400]))
    assert begin - LEAD_SAMPLES <= at <= begin
    assert end + TAIL_SAMPLES <= at + len(heard) <= end + TAIL_SAMPLES + 320


def test_a_pause_inside_is_heard_whole_however_long() -> None:
    pause = np.concatenate([sound(1), silence(7 * SECOND), sound(1, 3)])
    assert np.array_equal(trimmed(pause), pause)


def test_of_a_long_silence_behind_a_sound_no_more_than_two_seconds_wait() -> None:
    trim = Trim()
    given_so_far = len(trim.push(sound(1))) + len(trim.push(silence(9 * SECOND)))
    assert given_so_far == 10 * SECOND - MAX_PAUSE_SAMPLES
    assert len(trim.finish()) == 0


def test_without_any_sound_the_last_second_is_heard() -> None:
    assert len(trimmed(silence(30 * SECOND))) == KEPT_SAMPLES
    assert len(trimmed(silence(200))) == 200
    assert len(trimmed(silence(0))) == 0


def test_sound_from_the_first_sample_to_the_last_is_heard_whole() -> None:
    assert np.array_equal(trimmed(sound(3)), sound(3))


@pytest.mark.parametrize("peak", [1.0, 4.0, 2.0**17, 2.0**31])
def test_far_beyond_full_scale_is_a_sound(peak: float) -> None:
    """Arrays may hold integers as they are: the square of one is more than 64 bits hold."""
    tone = np.tile(np.float32([peak, -peak]), SECOND // 2)
    whole = np.concatenate([silence(SECOND), tone, silence(SECOND)])
    heard = trimmed(whole)
    assert SECOND <= len(heard) <= SECOND + LEAD_SAMPLES + TAIL_SAMPLES + 320
    trim = Trim()
    pieces = [trim.push(piece) for piece in np.split(whole, range(77, len(whole), 77))]
    assert np.array_equal(np.concatenate([*pieces, trim.finish()]), heard)
