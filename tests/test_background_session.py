"""A session beside another program: nothing waits, and a turn is the audio between two calls."""

from contextlib import asynccontextmanager

import anyio
import numpy as np
import pytest
import soxr
from patience import PATIENCE_S
from speech import recording

from streamer import BackgroundSession, Config, Describer, ModelError, voice_line, voice_profile

EDGE = Config.of(None, {"mode": "edge"})
FRAME = 320  # samples: 20 ms


@pytest.fixture(scope="module")
def spoken():
    return (recording(0) * 32_768).astype(np.int16)


@asynccontextmanager
async def running(voice=None):
    voice = voice or BackgroundSession(EDGE)
    async with anyio.create_task_group() as group:
        group.start_soon(voice.run)
        yield voice
        group.cancel_scope.cancel()


def say(voice, samples):
    return [
        voice.feed(samples[at : at + FRAME].tobytes(), 16_000)
        for at in range(0, len(samples), FRAME)
    ]


async def test_turn_is_that_of_a_session(spoken):
    """Two turns; silence of a minute between them belongs to neither."""
    async with Describer.open(EDGE) as describer:
        whole = await describer.describe((spoken, 16_000), measures=True)
    async with running() as voice:
        for _ in range(2):
            assert all(say(voice, np.zeros(960_000, np.int16)))
            assert await voice.end() is None
            assert voice.begin()
            assert all(say(voice, spoken))
            found = await voice.end()
            assert found.attributes == whole.attributes
            assert found.audio_s == pytest.approx(whole.audio_s + 1.5, abs=0.05)
            assert voice_line(found).startswith("The user speaks")
            assert voice_line(found, "zh").endswith(f"；情绪{found.levels['arousal']['zh']}。")
            assert set(voice_profile(found)) == set(whole.attributes)
            voice.begin()
            with anyio.fail_after(PATIENCE_S):
                assert await voice.end() is None  # no frame came
        with pytest.raises(ValueError, match="language is 'fr'; voice_line speaks en and zh"):
            voice_line(found, "fr")
        assert await voice.end() is None


async def test_frames_of_another_rate_are_converted(spoken):
    """To the rate of the first one, within a turn too, as where a telephone joins."""
    half = len(spoken) // 2
    async with running() as voice:
        found = []
        for later in (16_000, 8_000, 24_000):
            assert voice.begin()
            assert all(say(voice, spoken[:half]))
            rest = soxr.resample(spoken[half:], 16_000, later)
            for at in range(0, len(rest), later // 50):
                assert voice.feed(rest[at : at + later // 50].tobytes(), later)
            found.append(await voice.end())
    for other in found[1:]:
        assert other.audio_s == pytest.approx(found[0].audio_s, abs=0.05)
        assert other.attributes == found[0].attributes


async def test_frames_beyond_the_bound_are_left_out(spoken):
    """Nobody takes them before `run`. Where turns begin and end is kept."""
    voice = BackgroundSession(EDGE)
    assert voice.begin()
    taken = say(voice, np.zeros(1_000 * FRAME, np.int16))
    assert taken == [True] * 999 + [False]
    async with running(voice):
        found = await voice.end()
        assert found.audio_s == pytest.approx(999 * FRAME / 16_000)
        assert "0.0 s of audio were left out: feed frames no faster" in found.warning
        assert voice.begin()
        assert all(say(voice, spoken))
        assert (await voice.end()).warning is None  # of this turn nothing was


@pytest.mark.parametrize(
    ("frame", "rate", "says"),
    [
        (b"abc", 16_000, "3 bytes are no PCM16"),
        (bytes(2), 0, "sample_rate_hz is 0"),
        (bytes(2), 16_000.0, "give whole Hz"),
        ("abc", 16_000, "bytes-like"),
    ],
)
async def test_what_is_no_frame_is_refused_at_once(frame, rate, says):
    with pytest.raises((TypeError, ValueError), match=says):
        BackgroundSession(EDGE).feed(frame, rate)


def test_a_frame_may_be_an_array(spoken):
    voice = BackgroundSession(EDGE)
    for samples in (spoken[:161], spoken[:320:2], memoryview(spoken[:160])):
        assert voice.feed(samples, 16_000)
        voice.begin()


async def test_model_that_is_not_there_ends_waiting_calls(tmp_path):
    voice = BackgroundSession(Config.of(None, {"mode": "edge", "edge": str(tmp_path)}))
    voice.feed(bytes(640), 16_000)
    async with anyio.create_task_group() as group:
        group.start_soon(voice.end)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(ModelError):
            await voice.run()
    assert await voice.end() is None
