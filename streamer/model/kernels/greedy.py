"""The highest score, and how sure a model was of an id. In: logits [V] float32. Out: an id; the
gate's numbers."""

from __future__ import annotations

import numpy as np

from streamer.model.kernels.arithmetic import compiled, exp, f4
from streamer.model.kernels.simd import PANEL

# 0 * -inf is not a number
BANNED = f4(-np.inf)
_LEAST = f4(-1e4)


@compiled
def first_best(scores):
    """The lowest id of the highest score; -1 where all are banned."""
    best = BANNED
    found = -1
    for i in range(len(scores)):
        if scores[i] > best:
            best = scores[i]
            found = i
    return found


@compiled
def sums(raw, best):
    """(Z, sum of w x, second largest w) for w = exp(x), x = max(raw - best, -1e4)."""
    count = len(raw)
    lanes = np.zeros((2, PANEL))
    for at in range(0, count - PANEL + 1, PANEL):
        part = raw[at : at + PANEL]
        for j in range(PANEL):
            x = max(part[j] - best, _LEAST)
            w = exp(x)
            lanes[0, j] += w
            lanes[1, j] += w * x
    total = 0.0
    weighted = 0.0
    for j in range(PANEL):
        total += lanes[0, j]
        weighted += lanes[1, j]
    for i in range(count - count % PANEL, count):
        x = max(raw[i] - best, _LEAST)
        w = exp(x)
        total += w
        weighted += w * x
    return total, weighted


@compiled
def measure(raw, chosen):
    """Of the raw softmax: entropy in nats, p1 - p2 of the likeliest, log p of `chosen`."""
    first = first_best(raw)
    best = raw[first]
    second = BANNED
    for i in range(len(raw)):
        if raw[i] > second and i != first:
            second = raw[i]
    total, weighted = sums(raw, best)
    log_total = np.log(total)
    # entropy = ln Z - sum(w x) / Z; float64's last digit may say -1e-17
    entropy = max(0.0, log_total - weighted / total)
    margin = (1.0 - np.exp(second - best)) / total
    return entropy, margin, max(raw[chosen] - best, _LEAST) - log_total
