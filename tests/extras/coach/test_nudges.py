"""When a nudge is given: by evidence, with hysteresis, cooldown and gap; as rarely as asked for."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.extras.coach.network import Heard
from streamer.extras.coach.nudges import KINDS, Now, Nudger
from streamer.extras.coach.options import Baseline, Coach

USUAL = Baseline(5.0, 120.0, 3.0, -20.0, 0.1, 30.0, -25.0, 1.8, 0.0, 0.2, 0.0, 0.23)
COACH = Coach(filled_per_min=6)
STEP_S = 0.2
CHANGES = {
    "too_fast": {"tempo": 0.9},
    "too_slow": {"tempo": -0.9},
    "too_soft": {"level": -40.0},
    "flat": {"melody": -2.0},
    "long_silence": {"silence_s": 5.0},
    "no_pause": {"run_s": 15.0},
    "filled_pauses": {"filled": 6},
}
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
