"""The network of silero-vad: rows of samples to probabilities of speech, in numpy.

The weights are those of `silero_vad_16k_sequence.onnx` in silero-vad 6.2.3 (MIT licence, Copyright
(c) 2020-present Silero Team, https://github.com/snakers4/silero-vad). On 1,042 recordings of people
the probabilities are within 1e-4 of those that onnxruntime gives. One thread takes 60 to 110 ms for
60 s of audio; onnxruntime took 125 to 440 (2026-11).

A row is a frame with the end of the frame before it. Its spectrum passes four convolutions, an LSTM
that remembers earlier frames, and a single unit. Each row's products have a shape of their own, so
a frame's bits do not depend on how many frames one call has.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

WEIGHTS = Path(__file__).with_name("silero_vad.npz")
WIDTH = 128  # units of the LSTM
WINDOW = 256  # samples of one spectrum
_HALF = np.float32(0.5)
# Four windows of a row, 128 samples apart; past its end the row is mirrored. Then steps of three.
_SAMPLES = 575 - np.abs(575 - np.arange(0, 512, 128)[:, None] - np.arange(WINDOW))
_NEAR = np.arange(4)[:, None] + np.arange(3)


class State:
    """The state of the LSTM: `hidden` and `cell` [WIDTH] float32."""

    def __init__(self) -> None:
        self.hidden = np.zeros(WIDTH, np.float32)
        self.cell = np.zeros(WIDTH, np.float32)


def probabilities(rows: Floats, state: State) -> Floats:
    """The probability of speech in each row [n]. rows: [n, 576] float32, consecutive frames.
    `state` moves on. Raises OSError if the weights are missing."""
    weights = _weights()
    recur, out = weights["recur"], weights["out"]
    hidden, cell = state.hidden, state.cell
    found = np.empty(len(rows), np.float32)
    for i, fed in enumerate(_features(rows)):
        # sigmoid(x) = (1 + tanh(x / 2)) / 2; the weights of three gates are halved
        gates = np.tanh(fed + hidden @ recur)
        enters, stays, shown = (
            gates[k * WIDTH : (k + 1) * WIDTH] * _HALF + _HALF for k in (0, 1, 3)
        )
        cell = stays * cell + enters * gates[2 * WIDTH : 3 * WIDTH]
        hidden = shown * np.tanh(cell)
        found[i] = np.maximum(hidden, 0) @ out
    state.hidden, state.cell = hidden, cell
    return np.tanh((found + weights["out_bias"]) * _HALF) * _HALF + _HALF


def _features(rows: Floats) -> Floats:
    """The input of each row to the four gates [n, 4 * WIDTH]."""
    num, weights = len(rows), _weights()
    spectra = np.abs(np.fft.rfft(rows[:, _SAMPLES] * weights["window"]))  # [n, 4, 129]
    padded = np.zeros((num, 6, 129), np.float32)
    padded[:, 1:-1] = spectra
    heard = np.zeros((num, 5, WIDTH), np.float32)
    heard[:, 1:] = _layer(padded[:, _NEAR].reshape(num, 4, -1), 0)
    hidden = _layer(heard[:, _NEAR[::2]].reshape(num, 2, -1), 1)
    # The parts of the last two kernels that would only meet padding are left out.
    hidden = _layer(hidden.reshape(num, 1, -1), 2)
    return (_layer(hidden, 3) @ weights["feed"])[:, 0] + weights["gates"]


def _layer(inputs: Floats, index: int) -> Floats:
    weights = _weights()
    hidden: Floats = inputs @ weights[f"kernel{index}"] + weights[f"bias{index}"]
    return np.maximum(hidden, 0)


@functools.cache
def _weights() -> dict[str, Floats]:
    """kernel0 to kernel3 [inputs, outputs] with their biases, feed and recur [WIDTH, 4 * WIDTH] and
    gates [4 * WIDTH] (enter, stay, value, show), out [WIDTH] with out_bias, window [WINDOW]."""
    with np.load(WEIGHTS) as held:
        weights = {name: held[name] for name in held.files}
    halved = np.repeat(np.array([0.5, 0.5, 1, 0.5], np.float32), WIDTH)
    for name in ("feed", "recur", "gates"):
        weights[name] = weights[name] * halved
    turn = 2 * np.pi * np.arange(WINDOW) / WINDOW
    weights["window"] = (0.5 - 0.5 * np.cos(turn)).astype(np.float32)
    return weights
