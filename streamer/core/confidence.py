"""The chance that each level of a sentence is right, from its tokens' log-probabilities.

With measures it combines both: their chances of the levels, and the model's mass of the level that
it said. The words of the models alone have curves of their own.

A phrase begins with tokens that name its attribute; the tokens after them say its level. The mass
of a level, among the phrases that begin so, is the product of those tokens' probabilities, so it
costs no step. A curve, fitted on recordings with known levels, turns it into the chance that the
level is right (Platt 1999).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.core.attributes import ATTRIBUTES, Phrases, parse, spans

LEAST_S = 1.0
MOST_ODDS = 700.0  # of their log: `exp` of more overflows
LEAST = -12.0  # of a level's log mass, nats, and of the log of what is left of it


class SaidToken(NamedTuple):
    """The text that one committed id completes. log_prob: in the raw softmax of the model that
    chose it last, None where that is not known. verified: that model is the target."""

    text: str
    log_prob: float | None
    verified: bool


@dataclass(frozen=True, slots=True)
class Curve:
    """A level's mass to the chance that it is right: the logit of the one is a straight line of the
    other's and of the log of the turn's seconds. A level is surer with more speech than a
    model knows."""

    slope: float
    offset: float
    length: float = 0.0

    def __call__(self, log_mass: float, seconds: float) -> float:
        of_length = self.length * math.log(max(seconds, LEAST_S))
        log_odds = self.offset + self.slope * logit(log_mass) + of_length
        return 1 / (1 + math.exp(min(MOST_ODDS, -log_odds)))


@dataclass(frozen=True, slots=True)
class ConfidenceCurves:
    """The curves of a pair, by attribute, for the edge's softmax and the cloud's. fingerprint: of
    the cloud that they were fitted for."""

    edge: Mapping[str, Curve]
    cloud: Mapping[str, Curve]
    fingerprint: str


class Mass(NamedTuple):
    """The level that is said: log of its share among the attribute's phrases, nats. verified:
    the target's softmax says so, and has said it of each token that tells levels apart."""

    log_mass: float
    verified: bool


def logit(log_mass: float) -> float:
    """log(p / (1 - p)) of p = exp(`log_mass`), within bounds."""
    log_mass = max(LEAST, log_mass)
    rest = -math.expm1(log_mass)
    return log_mass - max(LEAST, math.log(rest) if rest > 0 else LEAST)


def confidence_of(
    pieces: Sequence[SaidToken],
    phrases: Phrases,
    curves: ConfidenceCurves,
    seconds: float,
    is_known_cloud: bool,
) -> dict[str, float | None]:
    """For each of ATTRIBUTES the chance that the level said is right; None where none is said, or
    no curve tells. seconds: of the turn. is_known_cloud: the curves were fitted for the cloud that
    verifies here."""
    found: dict[str, float | None] = dict.fromkeys(ATTRIBUTES)
    for name, mass in masses_of(pieces, phrases).items():
        of_model = curves.cloud if mass.verified else curves.edge
        if name in of_model and (is_known_cloud or not mass.verified):
            found[name] = of_model[name](mass.log_mass, seconds)
    return found


def fused_confidence(
    pieces: Sequence[SaidToken],
    phrases: Phrases,
    chances: Mapping[str, NDArray[np.float64]],
    opinion: Mapping[str, float],
) -> dict[str, float]:
    """The chance that each level said is right, by the measures and the model together.

    chances: of each level by the measures; opinion: the exponent of the model's chances. The model
    tells the mass of the level that it said; the other levels share the rest.
    """
    text = "".join(piece.text for piece in pieces)
    levels = parse(text, phrases)
    found = {}
    for name, mass in masses_of(pieces, phrases).items():
        level, measured = levels[name], chances.get(name)
        if level is None or measured is None or len(measured) != len(phrases[name]):
            continue
        own = math.exp(max(LEAST, mass.log_mass))
        others = max(math.exp(LEAST), 1 - own) / (len(measured) - 1)
        odds = measured * others ** opinion[name]
        odds[level] = measured[level] * own ** opinion[name]
        found[name] = float(odds[level] / odds.sum())
    return found


def masses_of(pieces: Sequence[SaidToken], phrases: Phrases) -> dict[str, Mass]:
    """attribute -> the mass of the level that the pieces say together; left out are attributes that
    are not said, and those of which a token's log-probability is not known."""
    text = "".join(piece.text for piece in pieces)
    found = {}
    for name, (begin, phrase) in spans(text, phrases).items():
        own = _pieces_in(pieces, begin + parting(phrase, name, phrases), begin + len(phrase))
        known = [piece.log_prob for piece in own if piece.log_prob is not None]
        if own and len(known) == len(own):
            found[name] = Mass(math.fsum(known), all(piece.verified for piece in own))
    return found


def parting(phrase: str, attribute: str, phrases: Phrases) -> int:
    """How many characters `phrase` has before the first where one of another level, that begins
    as it does, goes on otherwise; 0 where none begins so."""
    others = [
        _num_same(phrase, other)
        for level in phrases[attribute]
        if phrase not in level["phrases"]
        for other in level["phrases"]
    ]
    return min(filter(None, others), default=0)


def _pieces_in(pieces: Sequence[SaidToken], begin: int, end: int) -> list[SaidToken]:
    """Those that complete characters `begin` up to `end`. One without text is half a character: it
    goes with the next one that has some."""
    found: list[SaidToken] = []
    silent: list[SaidToken] = []
    at = 0
    for piece in pieces:
        silent.append(piece)
        if piece.text:
            if at < end and at + len(piece.text) > begin:
                found += silent
            at += len(piece.text)
            silent = []
    return found


def _num_same(a: str, b: str) -> int:
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n
