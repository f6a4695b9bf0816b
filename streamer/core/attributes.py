"""The attributes that a sentence names; a sentence read back into attribute -> level, and the
chance that each level is right.

Level 0 is the physically lowest: slowest, lowest, flattest, softest, fewest pauses, darkest,
calmest. The chance is by the measures and the model together. A phrase begins with tokens that name
its attribute; the tokens after them say its level. The mass of a level, among the phrases that
begin so, is the product of those tokens' probabilities, so it costs no step of a model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.core.decoding.plan import num_same
from streamer.core.rules.settings import ALL
from streamer.core.text.vocabulary import is_letter

ATTRIBUTES = ("rate", "pitch", "variation", "loudness", "pauses", "timbre", "arousal")
ACOUSTIC = "acoustic"  # in place of names: all attributes but the one nearest to a feeling
Profile = Literal["full", "acoustic"]  # of a card's promise
FORMS: Mapping[Profile, str] = {"full": ALL, "acoustic": ",".join(ATTRIBUTES[:-1])}

# Attribute -> a level's name -> its name in English, of the models that ship. Others' names stand
# alone.
ENGLISH: Mapping[str, Mapping[str, str]] = json.loads(
    Path(__file__).with_name("text").joinpath("levels.json").read_text("utf-8")
)
# attribute -> levels, lowest first, each {"name": str, "phrases": [str, ...]}; part of
# streamer.json
Phrases = Mapping[str, Sequence[Mapping[str, Any]]]
# attribute -> levels, lowest first, each language -> the level's name, None where it is unknown
LevelNames = Mapping[str, Sequence[Mapping[str, str | None]]]
NAMED_IN = ("zh", "en")  # the languages that every level's names have


def chosen(names: str | None, among: Collection[str] = ATTRIBUTES) -> str:
    """The attributes that a sentence names: in their order, joined by commas, or ALL.

    names: those that are asked for, with commas between them; ACOUSTIC or None for all such that
    are `among` those that may be named. Raises ValueError with one line for others, or for none.
    """
    may = [name for name in ATTRIBUTES if name in among]
    if names is None or names == ACOUSTIC:
        asked = [name for name in may if names is None or name != "arousal"]
    else:
        asked = [name.strip() for name in names.split(",")]
    for name in asked:
        if name not in may:
            why = "it is left out here; there are" if name in ATTRIBUTES else "known are"
            raise ValueError(f"attributes names {name!r}; {why} {', '.join(may) or 'none'}")
    found = [name for name in ATTRIBUTES if name in asked]
    if not found:
        raise ValueError("attributes names none; give some, with commas between them")
    return ALL if len(found) == len(ATTRIBUTES) else ",".join(found)


def names_of(form: str, among: Collection[str] = ATTRIBUTES) -> tuple[str, ...]:
    """Those `among` the attributes that a form names, as `chosen` gives it."""
    return tuple(name for name in among if form == ALL or name in form.split(","))


def level_names(spoken: Mapping[str, Phrases]) -> LevelNames:
    """The names of each attribute's levels, by the phrases of each language that a model speaks.

    zh and en are always there. A model that speaks no English has the English names of the models
    that ship where its own are theirs, else None.
    """
    found: dict[str, list[dict[str, str | None]]] = {}
    for language, phrases in spoken.items():
        for attribute, levels in phrases.items():
            rows = found.setdefault(attribute, [dict.fromkeys(NAMED_IN) for _ in levels])
            for row, level in zip(rows, levels, strict=False):
                row[language] = level["name"]
    for attribute, rows in found.items():
        for row in rows:
            row["en"] = row["en"] or ENGLISH.get(attribute, {}).get(row["zh"] or "")
    return found


def parse(text: str, phrases: Phrases) -> dict[str, int | None]:
    """The level of each of ATTRIBUTES in `text`; None where no phrase of it occurs.

    All attributes' phrases are matched together, longest first, then leftmost, without overlap, so
    that 不太快 is not read as 快. The first match of an attribute decides. Raises ValueError for an
    attribute it does not know.
    """
    levels: dict[str, int | None] = dict.fromkeys(ATTRIBUTES)
    return levels | {name: level for name, (_, _, level) in _matches(text, phrases).items()}


def _matches(text: str, phrases: Phrases) -> dict[str, tuple[int, str, int]]:
    """attribute -> (place, phrase, level) of its first match. Inside a longer word of Latin letters
    no phrase matches."""
    if unknown := sorted(set(phrases) - set(ATTRIBUTES)):
        known = ", ".join(ATTRIBUTES)
        raise ValueError(f"unknown attributes {', '.join(unknown)}: known are {known}")
    spoken: list[tuple[str, str, int]] = []
    for attribute in ATTRIBUTES:
        for i, level in enumerate(phrases.get(attribute, ())):
            spoken += [(phrase, attribute, i) for phrase in level["phrases"]]
    found: dict[str, tuple[int, str, int]] = {}
    for phrase, attribute, number in sorted(spoken, key=lambda entry: -len(entry[0])):
        end = 0
        while (at := text.find(phrase, end)) >= 0:
            end = at + len(phrase)
            if _is_one_word(text[at - 1 : at + 1]) or _is_one_word(text[end - 1 : end + 1]):
                end = at + 1
                continue
            found.setdefault(attribute, (at, phrase, number))
            text = text[:at] + TAKEN * len(phrase) + text[end:]
    return found


def _is_one_word(two: str) -> bool:
    """Whether a word goes on over two characters; Han has no such words."""
    return len(two) == 2 and all(map(is_letter, two))


TAKEN = "\0"  # stands for a character that belongs to a phrase
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
    is_greedy: bool,
) -> dict[str, float]:
    """The chance that each level said is right, by the measures and the model together.

    chances: of each level by the measures; opinion: the exponent of the model's chances. The model
    tells the mass of the level that it said; the other levels share the rest. A greedy choice
    (is_greedy) was the most likely level, so no other level counts for more.
    """
    levels = parse("".join(piece.text for piece in pieces), phrases)
    found = {}
    for name, log_mass in masses_of(pieces, phrases).items():
        level, measured = levels[name], chances.get(name)
        if level is None or measured is None or len(measured) != len(phrases[name]):
            continue
        own = math.exp(max(LEAST, log_mass))
        others = max(math.exp(LEAST), 1 - own) / (len(measured) - 1)
        odds = measured * others ** opinion[name]
        odds[level] = measured[level] * own ** opinion[name]
        if is_greedy:
            odds = np.minimum(odds, odds[level])
        found[name] = float(odds[level] / odds.sum())
    return found


def masses_of(pieces: Sequence[SaidToken], phrases: Phrases) -> dict[str, float]:
    """attribute -> log of the mass of the level that the pieces say together, nats. Left out are
    attributes that are not said, and those of which a token's log-probability is not known."""
    text = "".join(piece.text for piece in pieces)
    stops = list(accumulate(len(piece.text) for piece in pieces))
    found = {}
    for name, (begin, phrase, _) in _matches(text, phrases).items():
        # a phrase tells its level from the place where one of another level, that begins as it
        # does, goes on otherwise; all of it does if none begins so
        same: list[int] = []
        for level in phrases[name]:
            if phrase not in level["phrases"]:
                same += [num_same(phrase, other) for other in level["phrases"]]
        first = begin + min(filter(None, same), default=0)
        end = begin + len(phrase)
        own = [
            piece.log_prob
            for piece, stop in zip(pieces, stops, strict=True)
            if stop > first and stop - len(piece.text) < end
        ]
        known = [log_prob for log_prob in own if log_prob is not None]
        if own and len(known) == len(own):
            found[name] = math.fsum(known)
    return found
