"""Texts in the language of a sentence: the words of tables, units and warnings beside it.

chinese.json maps English to Chinese; the page loads it, too. Errors, help and logs are English.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path


@functools.cache
def texts() -> dict[str, dict[str, str]]:
    """Kind (words, warnings) -> English form -> Chinese form."""
    return json.loads(Path(__file__).with_name("chinese.json").read_text("utf-8"))


def told(language: str, english: str, *values: object) -> str:
    """A text in the language of a sentence, with its values."""
    form = english
    for forms in texts().values() if language == "zh" else ():
        form = forms.get(english, form)
    return form.format(*values) if values else form


def comma(language: str) -> str:
    return "，" if language == "zh" else ", "
