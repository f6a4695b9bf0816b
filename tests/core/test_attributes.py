"""Sentences read back into levels, how sure each level is; forms of text in both languages."""

import math
import re
from string import Formatter

import numpy as np
import pytest

from streamer.core import attributes
from streamer.core.rules.settings import ALL
from streamer.core.text import texts

PHRASES = {
    "rate": [
        {"name": "slow", "phrases": ["语速缓慢", "慢", "不太快"]},
        {"name": "even", "phrases": ["语速适中"]},
        {"name": "fast", "phrases": ["快", "语速很快"]},
    ],
    "arousal": [
        {"name": "calm", "phrases": ["平静", "情绪平稳"]},
        {"name": "excited", "phrases": ["快活", "激动"]},
    ],
    "pitch": [{"name": "low", "phrases": ["音调平稳低沉"]}, {"name": "high", "phrases": ["尖"]}],
}


@pytest.mark.parametrize(
    ("names", "among", "said"),
    [
        (None, attributes.ATTRIBUTES, ALL),
        (",".join(reversed(attributes.ATTRIBUTES)), attributes.ATTRIBUTES, ALL),
        ("pitch, rate", attributes.ATTRIBUTES, "rate,pitch"),
        ("acoustic", attributes.ATTRIBUTES, ",".join(attributes.ATTRIBUTES[:-1])),
        ("pitch", attributes.ATTRIBUTES, "pitch"),
        ("acoustic", ("rate", "arousal"), "rate"),
    ],
)
def test_names_of_a_sentence(names, among, said):
    assert attributes.chosen(names, among) == said


@pytest.mark.parametrize(
    ("names", "among", "error"),
    [
        ("tempo", attributes.ATTRIBUTES, "attributes names 'tempo'; known are rate, pitch"),
        ("", attributes.ATTRIBUTES, "attributes names ''; known are"),
        ("arousal", attributes.ATTRIBUTES[:-1], "'arousal'; it is left out here; there are rate"),
        ("pitch", ("rate",), "'pitch'; it is left out here; there are rate"),
        ("rate", (), "it is left out here; there are none"),
        ("acoustic", ("arousal",), "attributes names none"),
    ],
)
def test_unknown_names_are_refused(names, among, error):
    with pytest.raises(ValueError, match=error):
        attributes.chosen(names, among)


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("说话人语速很快，音调平稳低沉，情绪平稳。", {"rate": 2, "pitch": 0, "arousal": 0}),
        ("不太快", {"rate": 0}),
        ("快活", {"arousal": 1}),  # another attribute's longer phrase
        ("快活地快", {"rate": 2, "arousal": 1}),
    ],
)
def test_longest_first_without_overlap(text, levels):
    found = attributes.parse(text, PHRASES)
    assert list(found) == list(attributes.ATTRIBUTES)
    assert found == dict.fromkeys(attributes.ATTRIBUTES) | levels


def test_names_of_levels_in_both_languages():
    chinese = {"rate": [{"name": "很慢", "phrases": []}, {"name": "自编", "phrases": []}]}
    english = {"rate": [{"name": "crawling", "phrases": []}, {"name": "own", "phrases": []}]}
    shipped = {"zh": "很慢", "en": "very slow"}, {"zh": "自编", "en": None}
    assert attributes.level_names({"zh": chinese}) == {"rate": list(shipped)}
    assert attributes.level_names({"en": english})["rate"][0] == {"zh": None, "en": "crawling"}
    assert attributes.level_names({"zh": chinese, "en": english})["rate"][1] == {
        "zh": "自编",
        "en": "own",
    }
    other = {"zh": None, "en": None, "de": "很慢"}
    assert attributes.level_names({"zh": {}, "de": chinese})["rate"][0] == other


SPOKEN = {
    "rate": [
        {"name": "slow", "phrases": ["说得比较慢", "语速偏慢"]},
        {"name": "fast", "phrases": ["说得比较快", "语速偏快"]},
        {"name": "very fast", "phrases": ["说得非常快", "语速极快"]},
    ],
    "pitch": [{"name": "low", "phrases": ["音调低沉"]}, {"name": "high", "phrases": ["尖"]}],
}
LEVELS = {
    "rate": [{"name": f"level {i}", "phrases": [f"rate {word}"]} for i, word in enumerate("abc")]
}


def sure(level, mass, chances, opinion, is_greedy=False):
    pieces = [
        attributes.SaidToken("rate ", -0.5),
        attributes.SaidToken("abc"[level], math.log(mass)),
    ]
    measured, opinions = {"rate": np.array(chances)}, {"rate": opinion}
    return attributes.fused_confidence(pieces, LEVELS, measured, opinions, is_greedy)["rate"]


def test_a_greedy_choice_was_the_most_likely_level():
    """The measures are all but sure of another level; the model gave that one almost nothing."""
    chances = [0.001, 0.998, 0.001]
    assert sure(0, 0.9, chances, 1.0) < 0.02
    assert sure(0, 0.9, chances, 1.0, is_greedy=True) == pytest.approx(0.487, abs=0.01)


def pieces(*told):
    return [attributes.SaidToken(*each) for each in told]


def test_the_mass_is_that_of_the_tokens_that_tell_levels_apart():
    said = pieces(
        *(("他", -5), ("说得", -4), ("比较", -0.25), ("快", -0.5), ("，", -3), ("尖", -0.125))
    )
    assert attributes.masses_of(said, SPOKEN) == {"rate": (1, -0.75), "pitch": (1, -0.125)}


def test_what_is_not_known_is_not_told():
    """A phrase with one unknown log-probability gives its attribute no confidence."""
    assert attributes.masses_of(pieces(("语速", None), ("极快", -1)), SPOKEN)["rate"] == (2, -1)
    assert attributes.masses_of(pieces(("语速", -1), ("极快", None)), SPOKEN) == {}
    assert attributes.masses_of([], SPOKEN) == {}


FORMS = texts()["words"] | texts()["warnings"]
ENGLISH = re.compile("[A-Za-z]{2,}")


def slots(form):
    """(number, format) of each value that a form takes, in the order of the values."""
    fields = [(name, spec) for _, name, spec, _ in Formatter().parse(form) if name is not None]
    return sorted((int(name or i), spec) for i, (name, spec) in enumerate(fields))


@pytest.mark.parametrize("english", FORMS)
def test_a_form_takes_the_same_values_in_both_languages(english):
    chinese = FORMS[english]
    assert slots(english) == slots(chinese)
    assert not ENGLISH.search(re.sub(r"auto|HZ|--\w+|\.\w+|gated|\{.*?\}", "", chinese))
