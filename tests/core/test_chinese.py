"""Tables, warnings and verdicts beside a Chinese sentence are in Chinese."""

import re
from string import Formatter

import pytest

from streamer.core.text.chinese import texts

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
