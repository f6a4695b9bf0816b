"""`streamer compare`: the differences of two takes, with their errors."""

import json
import re

import pytest
from places import ROOT
from processes import run_here

from streamer.commands.compare import row_of
from streamer.core.attributes import ATTRIBUTES
from streamer.core.readings import Reading
from streamer.core.text.chinese import told

SLOW, FAST = (str(ROOT / "samples" / f"{name}.wav") for name in ("slow_soft", "fast_loud"))


def of(name, value, error, level=1):
    return Reading(name, level, 5, "name", value, error, "unit", None)


@pytest.mark.parametrize(
    ("first", "second", "numbers", "verdict"),
    [
        (-23.24, -23.68, "-23.2 → -23.7 unit -0.5 ±0.2", "perhaps softer"),
        (-23.6, -24.4, "-23.6 → -24.4 unit -0.8 ±0.2", "softer"),
        (-23.24, -23.26, "-23 → -23 unit +0 ±1", "the same, within the error"),
        (-37.0, -15.0, "-37 → -15 unit +22 ±1", "louder"),
    ],
)
def test_a_word_agrees_with_the_numbers_beside_it(first, second, numbers, verdict):
    """A difference is never shown as 0, and equality never as -0."""
    takes = (of("loudness", first, 0.15), of("loudness", second, 0.15))
    title, *shown, word = row_of(*takes, "en")
    assert (title, " ".join(shown), word) == ("loudness", numbers, verdict)


def test_two_takes_are_a_table_and_json():
    lines = run_here("compare", SLOW, FAST)[1].splitlines()
    assert lines[0].startswith(f"{SLOW}: 说话人")
    assert lines[1].startswith(f"{FAST}: 说话人")
    assert [line.split()[0] for line in lines[2:]] == [told("zh", name) for name in ATTRIBUTES]
    assert re.fullmatch(r"  语速 +[\d.]+ → [\d.]+ 音节/秒 +\+[\d.]+ ±[\d.]+ +更快", lines[2])
    english = run_here("compare", SLOW, FAST, "--language", "en")[1].splitlines()
    assert [line.split()[0] for line in english[2:]] == list(ATTRIBUTES)
    row = json.loads(run_here("compare", SLOW, FAST, "--json")[1])
    rate = row["attributes"]["rate"]
    assert rate["difference"] == pytest.approx(rate["second"]["value"] - rate["first"]["value"])
    assert (row["first"]["file"], rate["verdict"]) == (SLOW, "faster")
