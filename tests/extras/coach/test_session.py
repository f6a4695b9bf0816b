"""The coach in a live session with the real pair: a reading whose tempo changes."""

import gc
import tracemalloc

import anyio
import numpy as np
import parselmouth
import pytest
from parselmouth.praat import call
from speech import RATE_HZ, recording

from streamer import (
    Baseline,
    BaselineKnown,
    Coach,
    CoachNews,
    Describer,
    Description,
    Measures,
    Nudge,
)
from streamer.extras.coach.session import SessionCoach


def reading(num):
    """One of the bundled recordings, again and again."""
    return np.tile(recording(2), num)


def faster(samples, factor):
    """At the same pitch, by PSOLA."""
    sound = parselmouth.Sound(samples.astype(float), RATE_HZ)
    changed = call(sound, "Lengthen (overlap-add)", 75, 500, 1 / factor)
    return changed.values[0].astype(np.float32)


async def coached(samples, coach, size=8_000, **options):
    """(events of a live session, its baseline)"""
    data = (samples * 32767).astype("<i2")
    async with (
        Describer.open(mode="edge") as describer,
        describer.session(vad=True, coach=coach, **options) as session,
        anyio.create_task_group() as group,
    ):

        async def speak():
            for at in range(0, len(data), size):
                await session.feed(data[at : at + size].tobytes())
            await session.end()

        group.start_soon(speak)
        events = [event async for event in session]
        return events, session.baseline


async def test_a_reading_that_grows_fast_is_told():
    """Learnt from its first 10 s; nothing is said while it goes on as it was."""
    calm = reading(6)
    coach = Coach(learn_s=10, flat_ratio=0, breath_s=0)
    events, baseline = await coached(np.concatenate([calm, faster(reading(6), 2.2)]), coach)
    (nudge,) = [event for event in events if isinstance(event, Nudge)]
    assert (nudge.kind, nudge.usual) == ("too_fast", baseline.rate_syllables_per_s)
    assert nudge.t_s > len(calm) / RATE_HZ
    assert nudge.value > nudge.usual
    (known,) = [event for event in events if isinstance(event, BaselineKnown)]
    assert known.baseline == baseline
    assert baseline.speech_s == pytest.approx(10, abs=0.5)
    assert any(isinstance(event, Description) for event in events)
    assert not any(isinstance(event, Measures) for event in events)


async def test_no_cut_changes_a_nudge():
    usual = Baseline(5.0, 120.0, 2.5, -20.0, 0.1, 30.0, -25.0, 2.0, 0.0, 0.2, 0.0, 0.2)
    coach = Coach(baseline=usual, silence_s=6, breath_s=3)
    soft = np.concatenate([reading(3) * 0.01, np.zeros(9 * RATE_HZ, np.float32)])
    told = []
    for size in (700, 16_000):
        events, baseline = await coached(soft, coach, size)
        assert baseline == usual
        told.append([event for event in events if isinstance(event, Nudge)])
        times = [event.t_s for event in events if isinstance(event, CoachNews)]
        assert times == sorted(times)
    assert told[0] == told[1]
    assert {"too_soft", "long_silence"} <= {nudge.kind for nudge in told[0]}
    assert told[0][-1].value == pytest.approx(6, abs=0.25)


@pytest.mark.long
def test_silence_without_end_takes_no_memory():
    coach, silence = SessionCoach(Coach()), np.zeros(2 * RATE_HZ, np.float32)

    def traced_kb(minutes):
        for _ in range(30 * minutes):
            coach.push(silence)
            coach.work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / 1024

    traced_kb(1)
    tracemalloc.start()
    try:
        settled = traced_kb(1)
        assert traced_kb(4) - settled < 40  # 700 if each step left what its event has
    finally:
        tracemalloc.stop()
