"""Tables, warnings and verdicts beside a Chinese sentence are in Chinese."""

import re
from string import Formatter

import pytest

from streamer.commands.compare import Difference
from streamer.core.attributes import ATTRIBUTES
from streamer.core.readings import UNITS, Reading
from streamer.core.text.chinese import texts, told

FORMS = texts("words") | texts("warnings")
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


@pytest.mark.parametrize("name", ATTRIBUTES)
@pytest.mark.parametrize("value", [1.0, 1.4, 3.0])
def test_every_cell_of_a_table_is_told_in_chinese(name, value):
    unit = UNITS.get(name, ("", 1, 0))[0]

    def reading(level, v):
        return Reading(name, level, 5, "名", v if unit else None, 0.2, unit, v / 3, "likely")

    first, second = reading(0, 1.0), reading(1, value)
    cells = [*Difference.of(first, second).row("zh"), second.number("zh")]
    cells += [told("zh", each.certainty) for each in (first, second)]
    assert not [cell for cell in cells if ENGLISH.search(cell)]
