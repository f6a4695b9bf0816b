"""Typed reads out of parsed JSON. In: a value and its name. Out: the value as its type, or
ValueError naming both.

Files of a model come from anywhere: JSON has Infinity, half surrogate pairs and true where a size
should stand.
"""

from __future__ import annotations

from reprlib import repr as shown  # a value in an error stays one readable line
from typing import Any


def an_object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {shown(value)}, not an object")
    return value


def number(value: Any, name: str, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"{name} is {shown(value)}, not a number from {least:g} to {most:g}")
    return float(value)


def whole(value: Any, name: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} is {shown(value)}, not a whole number from {least} to {most}")
    return value


def text(value: Any, name: str) -> str:
    """A text that is not empty and has an UTF-8 form, which half a surrogate pair has not."""
    if not isinstance(value, str) or not value or any("\ud800" <= c <= "\udfff" for c in value):
        raise ValueError(f"{name} is {shown(value)}, not a text")
    return value


def line(value: Any, name: str) -> str:
    """A text for one line of a terminal."""
    if not text(value, name).isprintable():
        raise ValueError(f"{name} is {shown(value)}, not one printable line")
    return str(value)
