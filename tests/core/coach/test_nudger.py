"""When a word is said: however time is cut, with hysteresis, cooldown and gap."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.core.coach.baseline import Baseline
from streamer.core.coach.coach import Coach
from streamer.core.coach.nudger import KINDS, Now, Nudger

USUAL = Baseline(5.0, 120.0, 3.0, -20.0, 0.1, 30.0)
COACH = Coach(cooldown_s=20, gap_s=5)


def now(t_s, rate=5.0, level=-20.0, movement=3.0, silence_s=0.0, run_s=1.0):
    """The same in every window."""
    windows = (1.0, 1.5, 2.0, 2.5, 4.0, 5.0, 6.0, 8.0, 9.0)
    return Now(
        t_s,
        silence_s,
        run_s,
        dict.fromkeys(windows, rate),
        dict.fromkeys(windows, level),
        dict.fromkeys(windows, movement),
    )


def told(coach, moments, usual=USUAL):
    nudger = Nudger(coach)
    return [(n.kind, n.t_s) for moment in moments for n in nudger.hear(moment, usual)]


@pytest.mark.parametrize(
    ("kind", "change", "value", "was"),
    [
        ("too_fast", {"rate": 8.0}, 8.0, 5.0),
        ("too_slow", {"rate": 2.5}, 2.5, 5.0),
        ("too_soft", {"level": -35.0}, -35.0, -20.0),
        ("flat", {"movement": 0.8}, 0.8, 3.0),
        ("long_silence", {"silence_s": 5.0}, 5.0, None),
        ("no_pause", {"run_s": 15.0}, 15.0, None),
    ],
)
def test_each_kind_is_told_and_steady_speech_is_not(kind, change, value, was):
    nudger = Nudger(COACH)
    assert [nudger.hear(now(t / 5), USUAL) for t in range(100)] == [[]] * 100
    (nudge,) = nudger.hear(now(20, **change), USUAL)
    assert (nudge.kind, nudge.value, nudge.usual, nudge.t_s) == (kind, value, was, 20)
    assert nudge.unit
    assert kind in KINDS
    row = nudge.as_json()
    assert row["value"] == value
    assert set(row) == {field.name for field in dataclasses.fields(nudge)}


def test_without_a_baseline_only_silence_and_breath_are_judged():
    moments = [now(t, 9.0, -60.0, 0.1) for t in range(10)]
    assert told(COACH, moments, None) == []
    assert told(COACH, [now(9, silence_s=6.0)], None) == [("long_silence", 9)]


def test_a_kind_is_told_again_only_after_the_voice_came_back_and_the_cooldown():
    fast = [now(t, rate=9.0) for t in range(40)]
    assert told(COACH, fast) == [("too_fast", 0)]  # once, however long it lasts
    between = [now(t, rate=5.11 if t == 5 else 9.0) for t in range(40)]
    assert told(COACH, between) == [("too_fast", 0), ("too_fast", 20)]
    half = [now(t, rate=5.2 if t == 5 else 9.0) for t in range(40)]  # under the bound, not back
    assert told(COACH, half) == [("too_fast", 0)]


def test_two_kinds_keep_their_distance():
    both = [now(t, rate=9.0, level=-60.0) for t in range(12)]
    assert told(COACH, both) == [("too_fast", 0), ("too_soft", 5)]


def test_a_bound_of_zero_turns_a_kind_off():
    off = Coach(fast_ratio=0, slow_ratio=0, soft_db=0, flat_ratio=0, silence_s=0, breath_s=0)
    for change in ({"rate": 20.0}, {"rate": 0.1}, {"level": -90.0}, {"movement": 0.1}):
        assert told(off, [now(1, **change)]) == []
    assert told(off, [now(1, silence_s=99.0), now(2, run_s=99.0)]) == []


def test_a_small_change_is_told_by_long_windows_alone():
    """Three standard errors and a half: 1.5 times the rate is little in 1.5 s, and much in 9."""
    for seconds, is_told in ((1.5, False), (9.0, True)):
        moment = Now(1.0, 0.0, 1.0, {seconds: 7.5})
        assert bool(Nudger(COACH).hear(moment, USUAL)) is is_told


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.05, 0.9))
def test_events_at_other_times_tell_the_same(seed, step_s):
    """A voice whose phases last longer than the steps: the same kinds in the same order, each at
    most one step later than where it is asked without a pause."""
    chance = np.random.default_rng(seed)
    phases = [
        {},
        *({k: v} for k, v in (("rate", 9.0), ("level", -50.0), ("movement", 0.3), ("rate", 2.0))),
    ]
    plan = [phases[int(i)] for i in chance.integers(len(phases), size=12)]
    coach = Coach(cooldown_s=0, gap_s=0)

    def at(t_s):
        return now(t_s, **plan[min(int(t_s // 4), len(plan) - 1)])

    fine = told(coach, [at(t) for t in np.arange(0, 48, 0.01)])
    coarse = told(coach, [at(t) for t in np.arange(0, 48, step_s)])
    assert [kind for kind, _ in coarse] == [kind for kind, _ in fine]
    for (_, late), (_, soon) in zip(coarse, fine, strict=True):
        assert -1e-9 <= late - soon <= step_s + 0.01


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**31))
def test_no_voice_is_nudged_more_often_than_allowed(seed):
    chance = np.random.default_rng(seed)
    moments = [
        now(t / 5, *(chance.uniform(a, b) for a, b in ((0, 12), (-70, 0), (0, 6), (0, 8), (0, 30))))
        for t in range(600)
    ]
    found = told(COACH, moments)
    times = [t for _, t in found]
    assert all(b - a >= 5 for a, b in itertools.pairwise(times))
    for kind in KINDS:
        own = [t for k, t in found if k == kind]
        assert all(b - a >= 20 for a, b in itertools.pairwise(own))
