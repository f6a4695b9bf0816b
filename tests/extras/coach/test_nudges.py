"""When a word is said: by evidence, with hysteresis, cooldown and gap; as rarely as was asked for."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.extras.coach.network import Heard
from streamer.extras.coach.nudges import KINDS, Evidence, Now, Nudger
from streamer.extras.coach.options import Baseline, Coach

USUAL = Baseline(5.0, 120.0, 3.0, -20.0, 0.1, 30.0, -25.0, 1.8, 0.0, 0.2, 0.0, 0.23)
COACH = Coach(cooldown_s=20, gap_s=5, filled_per_min=6)
STEP_S = 0.2
FAST, SLOW, SOFT, FLAT = {"tempo": 0.9}, {"tempo": -0.9}, {"level": -40.0}, {"melody": -2.0}


def now(t_s, tempo=0.0, level=-25.0, melody=0.0, silence_s=0.0, run_s=1.0, trust=1.0, filled=0):
    """200 ms that are all speech; the measures agree with the steps."""
    values = [np.full(10, value, np.float32) for value in (level, tempo, melody)]
    measured = SpeechMeasures(
        rate_syllables_per_s=5.0 * 2**tempo,
        level_dbfs=level + 5,
        pitch_sd_semitones=3.0 * 2**melody,
    )
    heard = Heard(*values, np.full(10, trust, np.float32))
    return Now(t_s, silence_s, run_s, heard, lambda *_: measured, filled)


def phases(*plan):
    """(seconds, what is otherwise) one after another, in steps."""
    kept = [other for seconds, other in plan for _ in range(round(seconds / STEP_S))]
    return [now((i + 1) * STEP_S, **other) for i, other in enumerate(kept)]


def told(coach, moments, usual=USUAL):
    nudger = Nudger(coach)
    return [(n.kind, round(n.t_s, 1)) for moment in moments for n in nudger.hear(moment, usual)]


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("too_fast", FAST),
        ("too_slow", SLOW),
        ("too_soft", SOFT),
        ("flat", FLAT),
        ("long_silence", {"silence_s": 5.0}),
        ("no_pause", {"run_s": 15.0}),
        ("filled_pauses", {"filled": 6}),
    ],
)
def test_each_kind_is_told_and_steady_speech_is_not(kind, change):
    nudger = Nudger(COACH)
    assert [nudger.hear(moment, USUAL) for moment in phases((20, {}))] == [[]] * 100
    found = [nudge for moment in phases((6, change)) for nudge in nudger.hear(moment, USUAL)]
    (nudge,) = found
    assert nudge.kind == kind in KINDS
    assert nudge.unit
    if nudge.usual is not None:
        assert (nudge.value > nudge.usual) is (kind == "too_fast")
    assert set(nudge.as_json()) == {field.name for field in dataclasses.fields(nudge)}


def test_a_kind_is_told_again_only_after_the_voice_came_back_and_the_cooldown():
    assert [kind for kind, _ in told(COACH, phases((60, FAST)))] == ["too_fast"]
    back = told(COACH, phases((4, FAST), (4, {}), (40, FAST)))
    assert [kind for kind, _ in back] == ["too_fast", "too_fast"]
    assert back[1][1] - back[0][1] == pytest.approx(20, abs=0.3)
    hardly = told(COACH, phases((4, FAST), (0.2, {}), (40, FAST)))  # for too short to be back
    assert [kind for kind, _ in hardly] == ["too_fast"]


def test_a_word_waits_until_its_measure_agrees():
    """The frames are soft; the level that would be told is not."""
    loud = SpeechMeasures(level_dbfs=-19.0)
    moments = [dataclasses.replace(m, last=lambda *_: loud) for m in phases((6, SOFT))]
    assert told(COACH, moments) == []


def test_a_great_change_is_told_sooner_than_a_small_one_and_half_a_shift_never():
    waits = [told(COACH, phases((60, {"level": -25.0 - db})))[:1] for db in (4.4, 6, 9, 14)]
    assert waits[0] == []
    times = [wait[0][1] for wait in waits[1:]]
    assert times == sorted(times, reverse=True)
    assert times[0] > 2 * times[2]


@pytest.mark.parametrize("limit", [3.0, 5.0])
def test_evidence_is_as_rare_as_its_limit_says(limit):
    """Of white noise with the SD that is assumed: between two alarms lie at least e**limit steps on
    average (Lorden), each of a second here."""
    evidence, chance, alarms = Evidence(limit), np.random.default_rng(3), 0
    num = round(20 * math.exp(limit))
    for value in chance.standard_normal(num):
        evidence.weigh(float(value), 1.0, 2.0)
        if evidence.is_enough:
            alarms += 1
            evidence = Evidence(limit)
    assert alarms <= 20


@given(st.integers(0, 2**31))
def test_no_voice_is_nudged_more_often_than_allowed(seed):
    chance = np.random.default_rng(seed)
    bounds = ((-2, 2), (-70, 0), (-3, 2), (0, 8), (0, 30))
    moments = [now(t / 5, *(chance.uniform(a, b) for a, b in bounds)) for t in range(600)]
    found = told(COACH, moments)
    times = [t for _, t in found]
    assert all(b - a >= 4.99 for a, b in itertools.pairwise(times))
    for kind in KINDS:
        own = [t for k, t in found if k == kind]
        assert all(b - a >= 19.99 for a, b in itertools.pairwise(own))
