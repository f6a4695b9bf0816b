"""The curves of confidence. In: recordings whose levels are known. Out: both cards of the embedded
pair.

Each model hears a recording and says its own sentence: edge and cloud each have a curve for each
attribute. A curve is a logistic regression of "the level is right" on the logit of the level's
mass (Platt 1999) and the log of the turn's seconds. Without these, what is said of 60 s was right
in 0.91, at a confidence of 0.84. Two things were tried and left out (2026-11): the mass among the
ids that the form allows in place of the whole softmax (the same Brier score to 0.0001), and an
offset for each level (0.002 better, 18 numbers more).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.common import progress
from bench.people_clips import Clip
from streamer.assembly.models import Models
from streamer.config import Config
from streamer.core.attributes import parse
from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.confidence import Piece, logit, masses_of
from streamer.core.text.emitter import Emitter
from streamer.model.checkpoint.card import FILE
from streamer.model.checkpoint.card_write import write_confidence
from streamer.model.checkpoint.fingerprint import fingerprint_of
from streamer.model.drafters import IncrementalDrafter
from streamer.model.offline import hear_turn
from streamer.model.scheduler import drive
from streamer.model.thinker import Thinker

RIDGE = 0.01  # keeps a curve finite where every level was right


def fit(clips: Sequence[Clip]) -> None:
    """Fit the pair's curves and write them."""
    models = Models(Config(mode="gated"), calibrates=True)
    edge, cloud = models.pair
    assert edge is not None
    assert cloud is not None
    curves: dict[str, Any] = {
        "edge": curves_of(edge, models, clips, "edge"),
        "cloud": curves_of(cloud, models, clips, "cloud"),
        "fingerprint": fingerprint_of(cloud.directory),
        "num_clips": len(clips),
    }
    for thinker in (edge, cloud):
        write_confidence(thinker.directory, thinker.directory / FILE, curves)


def curves_of(
    thinker: Thinker, models: Models, clips: Sequence[Clip], name: str
) -> dict[str, dict[str, float]]:
    """attribute -> its curve, of what this model says by itself."""
    known = defaultdict(list)
    for clip in progress(clips, f"fitting the {name}"):
        pieces = pieces_of(thinker, models, clip.samples)
        seconds = min(len(clip.samples) / SAMPLE_RATE_HZ, thinker.card.max_turn_s)
        levels = parse("".join(piece.text for piece in pieces), models.phrases)
        for attribute, mass in masses_of(pieces, models.phrases).items():
            true = clip.levels.get(attribute)
            if true is not None:
                told = logit(mass.log_mass), np.log(seconds), levels[attribute] == true
                known[attribute].append(told)
    return {attribute: platt(np.array(rows, float)) for attribute, rows in known.items()}


def pieces_of(thinker: Thinker, models: Models, samples: np.ndarray) -> list[Piece]:
    """The sentence that the model says alone."""
    most = int(thinker.card.max_turn_s * SAMPLE_RATE_HZ)
    listener = hear_turn(thinker, samples[:most])
    rules = models.plan.rules
    drafter = IncrementalDrafter(listener, rules, models.config.sampling())
    ids, signals = drive(thinker.engine, drafter.draft(rules.max_new_tokens))
    listener.close()
    emitter = Emitter(thinker.vocabulary)
    return [
        Piece(emitter.push((token,)), signal.log_prob, False)
        for token, signal in zip(ids, signals, strict=True)
    ]


def platt(rows: np.ndarray) -> dict[str, float]:
    """rows [n, 3]: logit, log of seconds, whether it was right. The line whose logistic is
    likeliest, by Newton's steps."""
    x, right = np.column_stack([rows[:, :2], np.ones(len(rows))]), rows[:, 2]
    line = np.zeros(3)
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ line))
        slope = x.T @ (p - right) + RIDGE * line
        bend = (x.T * (p * (1 - p))) @ x + RIDGE * np.eye(3)
        line -= np.linalg.solve(bend, slope)
    return dict(zip(("slope", "length", "offset"), line.round(4).tolist(), strict=True))
