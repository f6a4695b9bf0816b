"""The window ledger: whatever the cut, in the end every window stands under the whole clip's
clamp."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.model.audio.mel import MelWindow, StreamingLogMel
from streamer.model.listener import REST_SAMPLES, STABLE_SAMPLES, WindowLedger


def whole_features(x: np.ndarray) -> np.ndarray:
    """All windows under the clip's own maximum: what a model that waits for the end would hear."""
    log_mel = StreamingLogMel()
    windows = [*log_mel.push(x), *log_mel.finish()]
    found = [window.features(log_mel.maximum) for window in windows]
    return np.concatenate([np.zeros((128, 0)), *found], axis=1)


class Prefill:
    """What the model's side does: keeps the features it holds per window, rolled back and filled
    again."""

    def __init__(self) -> None:
        self.log_mel, self.ledger = StreamingLogMel(), WindowLedger()
        self.held: list[np.ndarray] = []

    def push(self, samples: np.ndarray) -> None:
        windows = self.log_mel.push(samples)
        self.ledger.observe(self.log_mel.maximum, self.log_mel.num_samples)
        self._deliver(windows)
        self.redo(self.ledger.due(self.log_mel.num_samples))

    def finish(self) -> None:
        self._deliver(self.log_mel.finish())
        self.redo(self.ledger.finish(self.log_mel.maximum))

    def redo(self, index: int | None) -> None:
        if index is None:
            return
        del self.held[index + 1 :]
        old = self.held.pop()
        redos = self.ledger.redo(index)
        assert redos[0].changed
        assert redos[0].window.index == index
        assert not np.array_equal(old, redos[0].window.features(self.ledger.maximum))
        self.held += [redo.window.features(self.ledger.maximum) for redo in redos]

    def _deliver(self, windows: list[MelWindow]) -> None:
        self.held += [w.features(self.ledger.deliver(w)) for w in windows]


def growing(seconds: float, seed: int, shape: str) -> np.ndarray:
    """Noise whose level rises to the end, jumps about, falls, or stays near silence until one late
    click."""
    rng, n = np.random.default_rng(seed), int(seconds * 16_000)
    t = np.linspace(0, 1, n)
    steps = np.repeat(rng.uniform(-6, 0, 1 + n // 4_000), 4_000)[:n]
    level = {"rising": -6 + 6 * t, "jumps": steps, "falling": -6 * t, "click": np.full(n, -5.5)}[
        shape
    ]
    x = rng.standard_normal(n) * 0.2 * 10**level
    if shape == "click" and n:
        x[rng.integers(max(0, n - 3_000), n)] = 0.9
    if seed % 2:
        x[(np.arange(n) // 1_600) % 3 == 0] = 0  # digital silence: a minimum below every clamp
    return x.astype(np.float32)


@settings(max_examples=120, deadline=None)
@given(
    seconds=st.floats(0.02, 13),
    seed=st.integers(0, 99),
    shape=st.sampled_from(["rising", "jumps", "falling", "click"]),
    cuts=st.lists(st.floats(0, 1), max_size=40),
)
def test_every_window_ends_up_with_the_features_of_the_whole_clip(seconds, seed, shape, cuts):
    x, prefill = growing(seconds, seed, shape), Prefill()
    edges = [0, *sorted(int(c * len(x)) for c in cuts), len(x)]
    for a, b in itertools.pairwise(edges):
        prefill.push(x[a:b])
    prefill.finish()
    assert np.array_equal(
        np.concatenate([np.zeros((128, 0)), *prefill.held], axis=1), whole_features(x)
    )
    assert prefill.ledger.stale() is None
    assert prefill.ledger.num_delivered == len(prefill.held)


def window(index: int, maximum: float, minimum: float) -> MelWindow:
    raw = np.array([[minimum, maximum]], np.float32)
    return MelWindow(index, raw, maximum, minimum, 2, False, (index + 1) * 32_000)


def test_redo_waits_until_the_maximum_is_stable_but_not_at_the_end():
    ledger = WindowLedger()
    ledger.deliver(window(0, -1.0, -10.0))
    ledger.observe(0.0, 33_000)
    ledger.observe(1.0, 34_000)
    ledger.observe(1.0, 35_000)
    assert ledger.due(34_000 + STABLE_SAMPLES - 1) is None
    assert ledger.due(34_000 + STABLE_SAMPLES) == 0
    assert ledger.finish(2.0) == 0
    ledger.redo(0)
    assert ledger.due(99_000) is None
    ledger.observe(5.0, 100_000)
    assert ledger.due(102_000) == 0
    ledger.redo(0)
    ledger.observe(6.0, 103_000)
    # one window was redone: rest for a second
    assert ledger.due(102_000 + REST_SAMPLES - 1) is None
    assert ledger.due(102_000 + REST_SAMPLES) == 0
    ledger.redo(0)
    assert ledger.finish(2.0) is None


def test_windows_are_bounded_and_come_in_order() -> None:
    log_mel = StreamingLogMel()
    windows = log_mel.push(np.zeros(7 * 16_000, np.float32))
    ledger = WindowLedger(max_windows=2)
    ledger.deliver(windows[0])
    with pytest.raises(ValueError, match="window 0 delivered in place of 1"):
        ledger.deliver(windows[0])
    ledger.deliver(windows[1])
    with pytest.raises(ValueError, match="longer than 2 windows"):
        ledger.deliver(windows[2])
