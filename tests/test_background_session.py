"""A session beside another program: nothing waits, and a turn is the audio between two calls."""

import anyio
import numpy as np
import pytest
import soundfile
from places import SAMPLES

from streamer import BackgroundSession, Config, Describer, ModelError, voice_line, voice_profile

EDGE = Config.of(None, {"mode": "edge"})
FRAME = 320  # samples: 20 ms


@pytest.fixture(scope="module")
def spoken():
    samples, rate = soundfile.read(SAMPLES[0], dtype="int16")
    assert rate == 16_000
    return samples


def say(voice, samples):
    return [
        voice.feed(samples[at : at + FRAME].tobytes(), 16_000)
        for at in range(0, len(samples), FRAME)
    ]


async def test_turn_is_that_of_a_session(spoken):
    """Two turns; silence of a minute between them belongs to neither."""
    async with Describer.open(EDGE) as describer:
        whole = await describer.describe((spoken, 16_000), measures=True)
    voice = BackgroundSession(EDGE)
    async with anyio.create_task_group() as group:
        group.start_soon(voice.run)
        voice.feed(bytes(640), 16_000)
        assert await voice.end() is None  # the models are loaded
        for _ in range(2):
            for _ in range(6):  # ten seconds at a time: the queue is bounded
                assert all(say(voice, np.zeros(160_000, np.int16)))
                assert await voice.end() is None
            assert voice.begin()
            assert all(say(voice, spoken))
            found = await voice.end()
            assert found.attributes == whole.attributes
            assert found.audio_s == pytest.approx(whole.audio_s + 1.5, abs=0.05)
            assert voice_line(found).startswith("The user speaks")
            assert voice_line(found, "zh").endswith(f"；情绪{found.levels['arousal']['zh']}。")
            assert set(voice_profile(found)) == set(whole.attributes)
        with pytest.raises(ValueError, match="language is 'fr'; voice_line speaks en and zh"):
            voice_line(found, "fr")
        assert await voice.end() is None
        group.cancel_scope.cancel()


async def test_frames_beyond_the_bound_are_left_out(spoken):
    """Nobody takes them before `run`."""
    voice = BackgroundSession(EDGE)
    taken = say(voice, np.zeros(1_001 * FRAME, np.int16))
    assert taken == [True] * 1_000 + [False]
    assert not voice.begin()


async def test_rate_must_not_change(spoken):
    voice = BackgroundSession(EDGE)
    voice.feed(bytes(640), 16_000)
    with pytest.raises(ValueError, match="from 16000 to 8000 Hz"):
        voice.feed(bytes(640), 8_000)


async def test_model_that_is_not_there_ends_waiting_calls(tmp_path):
    voice = BackgroundSession(Config.of(None, {"mode": "edge", "edge": str(tmp_path)}))
    voice.feed(bytes(640), 16_000)
    async with anyio.create_task_group() as group:
        group.start_soon(voice.end)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(ModelError):
            await voice.run()
    assert await voice.end() is None
