"""Chinese for what stands beside a Chinese sentence: the words of tables, units and warnings.

chinese.json maps English texts to Chinese. The page loads it from the server. The errors, help and
logs of commands are English.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Literal


@functools.cache
def texts(kind: Literal["words", "warnings"]) -> dict[str, str]:
    """English form -> Chinese form. Raises OSError where the file is missing."""
    found: dict[str, dict[str, str]] = json.loads(
        Path(__file__).with_name("chinese.json").read_text("utf-8")
    )
    return found[kind]


def told(language: str, english: str, *values: object) -> str:
    """A text in the language of a sentence, with its values."""
    form = english
    if language == "zh":
        form = texts("words").get(english) or texts("warnings").get(english, english)
    return form.format(*values) if values else form


def comma(language: str) -> str:
    return "，" if language == "zh" else ", "
