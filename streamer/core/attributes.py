"""The attributes that a sentence names: a sentence read back into attribute -> level, the chance
that each level is right, and a description's attributes as rows, HTML and a line for agents.

Level 0 is the physically lowest: slowest, lowest, flattest, softest, fewest pauses, darkest,
calmest. The chance is by the measures and the model together. A phrase begins with tokens that name
its attribute; the tokens after them say its level. The mass of a level, among the phrases that
begin so, is the product of those tokens' probabilities, so it costs no step of a model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from streamer.core.decoding.plan import num_same
from streamer.core.measures.levels import MEASURES, NUM_LEVELS, expected_errors, levels_of
from streamer.core.rules.settings import ALL
from streamer.core.text import comma, told
from streamer.core.text.vocabulary import is_letter

ATTRIBUTES = ("rate", "pitch", "variation", "loudness", "pauses", "timbre", "arousal")
ACOUSTIC = "acoustic"  # in place of names: all attributes but the one nearest to a feeling
Profile = Literal["full", "acoustic"]  # of a card's promise
FORMS: Mapping[Profile, str] = {"full": ALL, "acoustic": ",".join(ATTRIBUTES[:-1])}

# Attribute -> a level's name -> its name in English, only for the models that ship.
_NAMES = Path(__file__).with_name("text") / "levels.json"
ENGLISH: Mapping[str, Mapping[str, str]] = json.loads(_NAMES.read_text("utf-8"))
# of streamer.json: attribute -> levels, lowest first, each {"name": str, "phrases": [str, ...]}
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
    if not (found := [name for name in ATTRIBUTES if name in asked]):
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
    """attribute -> (place, phrase, level) of its first match, never inside longer Latin words."""
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
            text = text[:at] + "\0" * len(phrase) + text[end:]  # no other phrase matches there
    return found


def _is_one_word(two: str) -> bool:
    """Whether a word goes on over two characters; Han has no such words."""
    return len(two) == 2 and all(map(is_letter, two))


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
    found = {}
    for name, (level, log_mass) in masses_of(pieces, phrases).items():
        measured = chances.get(name)
        if measured is None or len(measured) != len(phrases[name]):
            continue
        own = math.exp(max(LEAST, log_mass))
        others = max(math.exp(LEAST), 1 - own) / (len(measured) - 1)
        odds = measured * others ** opinion[name]
        odds[level] = measured[level] * own ** opinion[name]
        if is_greedy:
            odds = np.minimum(odds, odds[level])
        found[name] = float(odds[level] / odds.sum())
    return found


def masses_of(pieces: Sequence[SaidToken], phrases: Phrases) -> dict[str, tuple[int, float]]:
    """attribute -> the level that the pieces say together, and the log of its mass, nats. Left out
    are attributes that are not said, and those of which a token's log-probability is not known."""
    text = "".join(piece.text for piece in pieces)
    stops = list(accumulate(len(piece.text) for piece in pieces))
    found = {}
    for name, (begin, phrase, number) in _matches(text, phrases).items():
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
            found[name] = number, math.fsum(known)
    return found


ABSENT = "-"
SURE = 0.9  # the chance of a level, from which on it is called sure
LIKELY = 0.6


@dataclass(frozen=True)
class Reading:
    """One attribute of one description.

    level: 0 is the physically lowest, of num_levels. name: of the level, in the description's
    language. value, error: in `unit`, the error as expected on average. chance: that the level is
    right. certainty: that in a word, "sure", "likely" or "unsure"; also "unsure" where a warning
    says that the measure cannot be relied on, or the number lies in another level; "" if it is
    unknown. None: not said, not known, or not measured; arousal has no number of its own.
    """

    attribute: str
    level: int | None
    num_levels: int
    name: str | None
    value: float | None
    error: float | None
    unit: str
    chance: float | None
    certainty: str = ""

    def number(self, language: str = "en") -> str:
        """Such as "4.9 ±0.3 syllables/s"; a dash if there is none."""
        if self.value is None:
            return ABSENT
        *_, decimals = MEASURES[self.attribute]
        # an error never rounds to 0: 0.3 Hz shows as 1 Hz
        off = None if self.error is None else max(self.error, 10.0**-decimals)
        error = "" if off is None else f" ±{off:.{decimals}f}"
        return f"{self.value:.{decimals}f}{error} {told(language, self.unit)}"

    def cells(self, language: str) -> tuple[str, str, str, str]:
        """Title, name, number and certainty, in a language."""
        name, title = self.name or ABSENT, told(language, self.attribute)
        return title, name, self.number(language), told(language, self.certainty)


def readings_of(found: Any) -> list[Reading]:
    """A row for each attribute of a Description. Numbers need one with measures."""
    errors: Mapping[str, float] = {}
    # the level of each measure; None if it cannot be relied on
    measured: Mapping[str, int | None] = dict.fromkeys(ATTRIBUTES, 0)
    if found.measures is not None:
        errors, measured = expected_errors(found.measures), levels_of(found.measures)
    rows = []
    for name in ATTRIBUTES:
        level, names = found.levels.get(name), found.level_names.get(name)
        field, unit, times, _ = MEASURES.get(name, ("", "", 1, 0))
        values = getattr(found.measures, field, None), errors.get(name)
        value, error = (None if each is None else times * each for each in values)
        num_levels = len(names) if names else NUM_LEVELS[name]
        is_doubted = measured[name] is None
        if level is not None and value is not None and num_levels == NUM_LEVELS[name]:
            is_doubted |= level.level != measured[name]
        certainty = ""
        if (chance := (found.confidence or {}).get(name)) is not None:
            is_likely = chance >= LIKELY and not is_doubted
            certainty = ("sure" if chance >= SURE else "likely") if is_likely else "unsure"
        number, word = (None, None) if level is None else (level.level, level.name)
        rows.append(Reading(name, number, num_levels, word, value, error, unit, chance, certainty))
    return rows


MAX_POINTS = 1280  # of a curve


def card(found: Any) -> str:
    """Sentence, gauges of attributes, curves: HTML without scripts or outside resources."""
    language, rows = found.language, ""
    for reading in readings_of(found):
        title, *others = map(escape, reading.cells(language))
        gauge = f'<meter min="-1" max="{reading.num_levels - 1}" value="{reading.level}"></meter>'
        cells = title, gauge if reading.level is not None else "", *others
        rows += f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    warning = f"<p>{escape(found.warning)}</p>" if found.warning else ""
    text = escape(found.text) or told(language, "no speech")
    about = [found.file, told(language, "{:.1f} s", found.audio_s)]
    curves = ""
    if found.timeline is not None:
        curves = _curves(found.timeline.curves)
        about.append(told(language, "the line is pitch, the area loudness"))
    about_it = escape(comma(language).join(about))
    return f"<h4>{text}</h4>{warning}<table>{rows}</table>{curves}<p>{about_it}</p>"


def _curves(curves: Any) -> str:
    """Level from -70 to 0 dBFS as an area, pitch from 60 to 480 Hz as a line, on any background."""
    shown = curves.thinned(MAX_POINTS)
    area = " ".join(f"{x},{-y:.0f}" for x, y in enumerate(shown.level_dbfs.clip(-70, 0)))
    line = "".join(
        f"M{x},{70 - 70 * math.log2(hz / 60) / 3:.0f}h1"
        for x, hz in enumerate(shown.f0_hz)
        if hz > 0
    )
    return (
        f'<svg viewBox="0 0 {len(shown)} 70" preserveAspectRatio="none" width="640" height="90" '
        f'role="img" aria-label="level and pitch over time">'
        f'<polygon points="0,70 {area} {len(shown)},70" fill="rgba(128,128,128,.3)"/>'
        f'<path d="{line}" stroke="#0d9488" stroke-width="2"/></svg>'
    )


Language = Literal["en", "zh"]
# How a line words each level; of the rate and the loudness the number follows in parentheses.
MANNER = {
    "rate": ("very slowly", "slowly", "at a moderate pace", "fast", "very fast"),
    "loudness": ("very softly", "softly", "at a moderate volume", "loudly"),
    "variation": ("in a monotone", "with moderate intonation", "with lively intonation"),
    "pauses": ("with hardly a pause", "with some pauses", "with many pauses"),
}


def voice_profile(found: Any, language: Language = "en") -> dict[str, dict[str, Any]]:
    """Attribute -> {"label", "level", "confidence", "value", "error", "unit"}, of the attributes
    that the sentence names.

    label: the level's name, in `language` if it has one. confidence: the chance that the level is
    right. value, error: as in `Reading`, None without measures. Without speech it is {}.
    """
    return {
        row.attribute: {
            "label": found.levels[row.attribute].get(language) or row.name,
            "level": row.level,
            "confidence": None if row.chance is None else round(row.chance, 3),
            "value": None if row.value is None else round(row.value, 2),
            "error": None if row.error is None else round(row.error, 2),
            "unit": row.unit,
        }
        for row in readings_of(found)
        if row.level is not None
    }


def voice_line(found: Any, language: Language = "en") -> str:
    """One line for the prompt of an agent, "" without speech: "The user speaks fast
    (6.1 syllables/s), loudly (-18 dBFS), with hardly a pause; sounds excited." Raises ValueError
    for another language."""
    if language not in get_args(Language):
        known = " and ".join(get_args(Language))
        raise ValueError(f"language is {language!r}; voice_line speaks {known}")
    profile = voice_profile(found, language)
    manner = []
    for name, words in MANNER.items():
        if (row := profile.get(name)) is not None:
            word = row["label"]
            if row["level"] < len(words):  # a model of one's own may have more levels than words
                word = told(language, words[row["level"]])
            if row["value"] is not None and name in ("rate", "loudness"):
                number = f"{row['value']:.{MEASURES[name][3]}f}"
                word += told(language, " ({} {})", number, told(language, row["unit"]))
            manner.append(word)
    ends = [told(language, "speaks {}", comma(language).join(manner))] if manner else []
    if "arousal" in profile:
        ends.append(told(language, "sounds {}", profile["arousal"]["label"]))
    return told(language, "The user {}.", told(language, "; ").join(ends)) if ends else ""
