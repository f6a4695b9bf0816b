"""Text of others as one line that a terminal and a log can bear. In: any text. Out: printable
characters only."""

from __future__ import annotations

_BREAKS = dict.fromkeys(map(ord, "\n\r\t"), " ")


def one_line(text: str) -> str:
    """Line breaks become blanks; what a terminal would act on is spelled out."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text.translate(_BREAKS))
