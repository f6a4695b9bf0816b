"""The coach: its steps, when a nudge is given, profiles and thresholds, a live session."""

import dataclasses
import gc
import hashlib
import itertools
import json
import tracemalloc

import anyio
import numpy as np
import parselmouth
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parselmouth.praat import call
from speech import RATE_HZ, recording

import streamer
from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.extras.coach import nudges
from streamer.extras.coach.nudges import KINDS, Heard, Now, Nudger, Voice, steps_of
from streamer.extras.coach.options import FORM, BaselineError
from streamer.extras.coach.session import SessionCoach

USUAL = streamer.Baseline(5.0, 120.0, 3.0, -20.0, 0.1, 30.0, -25.0, 1.8, 0.0, 0.2, 0.0, 0.23)
COACH = streamer.Coach(filled_per_min=6)
STEP_S = 0.2
CHANGES = {"too_fast": {"tempo": 0.9}, "too_slow": {"tempo": -0.9}, "too_soft": {"level": -40.0}}
CHANGES |= {"flat": {"melody": -2.0}, "long_silence": {"silence_s": 5.0}}
CHANGES |= {"no_pause": {"run_s": 15.0}, "filled_pauses": {"filled": 6}}
FAST, SOFT = CHANGES["too_fast"], CHANGES["too_soft"]


def now(t_s, tempo=0.0, level=-25.0, melody=0.0, silence_s=0.0, run_s=1.0, filled=0):
    """200 ms that are all speech; the measures agree with the steps."""
    values = [np.full(10, value, np.float32) for value in (level, tempo, melody, 1.0)]
    told = {"rate_syllables_per_s": 5.0 * 2**tempo, "pitch_sd_semitones": 3.0 * 2**melody}
    measured = SpeechMeasures(level_dbfs=level + 5, **told)
    return Now(t_s, silence_s, run_s, Heard(*values), lambda *_: measured, filled)


def phases(*plan):
    """(seconds, changes) one after another, in steps."""
    kept = [other for seconds, other in plan for _ in range(round(seconds / STEP_S))]
    return [now((i + 1) * STEP_S, **other) for i, other in enumerate(kept)]


def given_in(moments):
    nudger = Nudger(COACH)
    return [(n.kind, round(n.t_s, 1)) for each in moments for n in nudger.hear(each, USUAL)]


@pytest.mark.parametrize("kind", CHANGES)
def test_each_kind_is_given_and_steady_speech_has_none(kind):
    nudger = Nudger(COACH)
    assert [nudger.hear(moment, USUAL) for moment in phases((20, {}))] == [[]] * 100
    (nudge,) = [n for each in phases((6, CHANGES[kind])) for n in nudger.hear(each, USUAL)]
    assert nudge.kind == kind in KINDS
    assert nudge.unit
    assert nudge.usual is None or (nudge.value > nudge.usual) is (kind == "too_fast")
    assert set(nudge.as_json()) == {field.name for field in dataclasses.fields(nudge)}


def test_a_kind_comes_again_only_after_the_voice_came_back_and_the_cooldown():
    assert [kind for kind, _ in given_in(phases((60, FAST)))] == ["too_fast"]
    (_, first), (_, second) = given_in(phases((4, FAST), (4, {}), (40, FAST)))
    assert second - first == pytest.approx(20, abs=0.3)
    assert len(given_in(phases((4, FAST), (0.2, {}), (40, FAST)))) == 1  # not back for long enough


def test_a_nudge_waits_until_its_measure_agrees_and_comes_sooner_after_a_great_change():
    loud = SpeechMeasures(level_dbfs=-19.0)
    moments = [dataclasses.replace(m, last=lambda *_: loud) for m in phases((6, SOFT))]
    assert given_in(moments) == []  # the frames are soft, the level of the nudge is not
    half, *waits = [given_in(phases((60, {"level": -25.0 - db})))[:1] for db in (4.4, 6, 9, 14)]
    times = [wait[0][1] for wait in waits]
    assert (half, times) == ([], sorted(times, reverse=True))
    assert times[0] > 2 * times[2]


@given(st.integers(0, 2**31))
def test_no_voice_is_nudged_more_often_than_allowed(seed):
    chance = np.random.default_rng(seed)
    bounds = ((-2, 2), (-70, 0), (-3, 2), (0, 8), (0, 30))
    found = given_in([now(t / 5, *(chance.uniform(*b) for b in bounds)) for t in range(600)])
    for gap_s, kinds in [(4.99, KINDS), *((19.99, [kind]) for kind in KINDS)]:
        times = [t for kind, t in found if kind in kinds]
        assert all(b - a >= gap_s for a, b in itertools.pairwise(times))


def test_new_weights_have_a_new_form():
    """Raise FORM in options.py, then write both here: older baselines are refused."""
    digest = hashlib.sha256(nudges.WEIGHTS.read_bytes()).hexdigest()[:12]
    assert (FORM, digest) == (5, "9abc903b96cf")


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.lists(st.integers(1, 79), max_size=8, unique=True))
def test_the_same_for_every_cut(seed, cuts):
    chance = np.random.default_rng(seed)
    steps = steps_of(
        chance.uniform(-90, -10, (160, nudges.NUM_BANDS)).astype(np.float32),
        chance.uniform(-70, -10, 160).astype(np.float32),
        chance.choice([0, 0, 100, 140, 300], 160).astype(np.float32),
    )
    speech = chance.random(80) > 0.3
    whole, voice = Voice().push(steps, speech), Voice()
    slices = [slice(a, b) for a, b in itertools.pairwise([0, *sorted(cuts), 80])]
    parts = [voice.push(steps[each], speech[each]) for each in slices]
    for name in ("loudness", "tempo", "melody", "trust"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        assert np.allclose(joined, getattr(whole, name), atol=1e-3)


KEPT = streamer.Baseline(
    4.8123, 118.25, 2.5, -21.0, 0.125, 30.5, -27.0, 1.75, 0.25, 0.2, -0.1, 0.22
)

SAVED = KEPT.as_json()
OTHER = "another version of streamer saved this baseline; leave it out"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "is no baseline (Expecting value"),
        ("[" * 9_000, "is no baseline ("),
        (3, OTHER),
        ({}, OTHER),
        (SAVED | {"form": FORM - 1}, OTHER),
        ({"form": FORM}, "missing required field `rate_syllables_per_s`"),
        (SAVED | {"level_dbfs": 10**400}, "level_dbfs"),
        (SAVED | {"level_dbfs": 3.0}, "level_dbfs is 3.0; it may be -120 to 0"),
        (SAVED | {"level_dbfs": "x"}, "Expected `float`, got `str` - at `$.level_dbfs`"),
        (SAVED | {"pause_share": float("nan")}, "pause_share is nan"),
    ],
)
def test_a_profile_that_cannot_be_is_told_in_one_line(tmp_path, content, told):
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / "me.json").write_text(text)
    with pytest.raises(BaselineError) as error:
        streamer.Baseline.load(tmp_path / "me.json")
    assert str(error.value).startswith(f"{tmp_path / 'me.json'}: ")
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_coach_comes_from_keywords_text_and_a_file(tmp_path):
    (tmp_path / "coach.toml").write_text("fast_ratio = 1.3\nsilence_s = 8\n")
    wanted = streamer.Coach(fast_ratio=1.3, silence_s=8.0)
    assert streamer.Coach.of({"fast_ratio": 1.3, "silence_s": 8}) == wanted
    assert streamer.Coach.parse("fast_ratio=1.3, silence_s=8") == wanted
    assert streamer.Coach.parse(str(tmp_path / "coach.toml")) == wanted
    assert streamer.Coach.of({"silence_s": 8}, streamer.Coach(fast_ratio=1.3)) == wanted
    assert streamer.Coach.of({"baseline": KEPT.as_json()}).baseline == KEPT
    KEPT.save(tmp_path / "me.json")
    assert streamer.Coach.parse(f"baseline={tmp_path / 'me.json'}").baseline == KEPT


def reading(num):
    """One of the bundled recordings, again and again."""
    return np.tile(recording(2), num)


async def coached(samples, coach, size=8_000, **options):
    """(events of a live session, its baseline)"""
    data = (samples * 32767).astype("<i2")
    async with (
        streamer.Describer.open(mode="edge") as describer,
        describer.session(vad=True, coach=coach, **options) as session,
        anyio.create_task_group() as group,
    ):

        async def speak():
            for at in range(0, len(data), size):
                await session.feed(data[at : at + size].tobytes())
            await session.end()

        group.start_soon(speak)
        return [event async for event in session], session.baseline


async def test_a_reading_that_grows_fast_is_told():
    """Learnt from its first 10 s; nothing is said while it goes on as it was."""
    calm = reading(6)
    sound = parselmouth.Sound(calm.astype(float), RATE_HZ)
    fast = call(sound, "Lengthen (overlap-add)", 75, 500, 1 / 2.2)  # at the same pitch
    coach = streamer.Coach(learn_s=10, flat_ratio=0, breath_s=0)
    samples = np.concatenate([calm, fast.values[0].astype(np.float32)])
    events, baseline = await coached(samples, coach)
    (nudge,) = [event for event in events if isinstance(event, streamer.Nudge)]
    assert (nudge.kind, nudge.usual) == ("too_fast", baseline.rate_syllables_per_s)
    assert nudge.t_s > len(calm) / RATE_HZ
    assert nudge.value > nudge.usual
    (known,) = [event for event in events if isinstance(event, streamer.BaselineKnown)]
    assert known.baseline == baseline
    assert baseline.speech_s == pytest.approx(10, abs=0.5)
    assert any(isinstance(event, streamer.Description) for event in events)
    assert not any(isinstance(event, streamer.Measures) for event in events)


async def test_no_cut_changes_a_nudge():
    usual = streamer.Baseline(5.0, 120.0, 2.5, -20.0, 0.1, 30.0, -25.0, 2.0, 0.0, 0.2, 0.0, 0.2)
    coach = streamer.Coach(baseline=usual, silence_s=6, breath_s=3)
    soft = np.concatenate([reading(3) * 0.01, np.zeros(9 * RATE_HZ, np.float32)])
    told = []
    for size in (700, 16_000):
        events, baseline = await coached(soft, coach, size)
        assert baseline == usual
        told.append([event for event in events if isinstance(event, streamer.Nudge)])
        times = [event.t_s for event in events if isinstance(event, streamer.CoachNews)]
        assert times == sorted(times)
    assert told[0] == told[1]
    assert {"too_soft", "long_silence"} <= {nudge.kind for nudge in told[0]}
    assert told[0][-1].value == pytest.approx(6, abs=0.25)


@pytest.mark.long
def test_silence_without_end_takes_no_memory():
    coach, silence = SessionCoach(streamer.Coach()), np.zeros(2 * RATE_HZ, np.float32)

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
