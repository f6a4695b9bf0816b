"""The chance that each level of a sentence is right: by the measures and the model together.

A phrase begins with tokens that name its attribute; the tokens after them say its level. The mass
of a level, among the phrases that begin so, is the product of those tokens' probabilities, so it
costs no step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.core.attributes import Phrases, parse, spans

LEAST = -12.0  # of a level's log mass, nats, and of the log of what is left of it


class SaidToken(NamedTuple):
    """The text that one committed id completes. log_prob: in the raw softmax of the model that
    chose it last, None where that is not known."""

    text: str
    log_prob: float | None


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
    for name, log_mass in masses_of(pieces, phrases).items():
        level, measured = levels[name], chances.get(name)
        if level is None or measured is None or len(measured) != len(phrases[name]):
            continue
        own = math.exp(max(LEAST, log_mass))
        others = max(math.exp(LEAST), 1 - own) / (len(measured) - 1)
        odds = measured * others ** opinion[name]
        odds[level] = measured[level] * own ** opinion[name]
        found[name] = float(odds[level] / odds.sum())
    return found


def masses_of(pieces: Sequence[SaidToken], phrases: Phrases) -> dict[str, float]:
    """attribute -> log of the mass of the level that the pieces say together, nats. Left out are
    attributes that are not said, and those of which a token's log-probability is not known."""
    text = "".join(piece.text for piece in pieces)
    found = {}
    for name, (begin, phrase) in spans(text, phrases).items():
        own = _pieces_in(pieces, begin + parting(phrase, name, phrases), begin + len(phrase))
        known = [piece.log_prob for piece in own if piece.log_prob is not None]
        if own and len(known) == len(own):
            found[name] = math.fsum(known)
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
