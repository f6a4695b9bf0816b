"""Structured logs: JSON lines, by stream id. In: an event and numbers. Out: the `streamer` logger.

No audio ever; the described text only inside `logging_to(..., text=True)`. Silent unless a handler
is attached.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

_logger = logging.getLogger("streamer")
_logger.addHandler(logging.NullHandler())


def log(event: str, stream: str, *, text: str | None = None, **numbers: Any) -> None:
    """Log `event` of `stream`. Handlers leave `text` out unless they were told otherwise."""
    if _logger.isEnabledFor(logging.INFO):
        _logger.info(event, extra={"stream": stream, "numbers": numbers, "described": text})


class JsonLines(logging.Formatter):
    """A record as a line of JSON: time (s since the epoch), level, event, stream, numbers."""

    def __init__(self, text: bool = False) -> None:
        super().__init__()
        self._text = text

    def format(self, record: logging.LogRecord) -> str:
        row: dict[str, Any] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "stream": getattr(record, "stream", None),
            **getattr(record, "numbers", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            row["error"] = "".join(traceback.format_exception(record.exc_info[1]))
        if self._text and getattr(record, "described", None) is not None:
            row["text"] = record.described  # type: ignore[attr-defined]
        return json.dumps(row, ensure_ascii=False)


class Lines(logging.StreamHandler[TextIO]):
    """Writes records to a stream. Where the disk is full, the work goes on: `on_lost` is told once
    why, and a line is written as soon as there is room again."""

    def __init__(self, stream: TextIO, on_lost: Callable[[str], None] | None = None) -> None:
        super().__init__(stream)
        self._on_lost = on_lost

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif self._on_lost is not None:
            self._on_lost(error.strerror or str(error))
            self._on_lost = None


def log_errors_to(stream: TextIO) -> None:
    """Write errors of our own, with their traceback, to `stream`: one line of JSON each."""
    _add(Lines(stream), JsonLines(), logging.ERROR)


@contextmanager
def logging_to(
    file: str, on_lost: Callable[[str], None] | None = None, *, text: bool = False
) -> Iterator[None]:
    """Append log lines to `file`; with `text`, what was described too. Raises OSError where it
    cannot be opened; `on_lost` is told once why a line cannot be written."""
    stream = open(file, "a", encoding="utf-8")  # noqa: SIM115  # closing may fail, too
    handler = _add(Lines(stream, on_lost), JsonLines(text), logging.INFO)
    _logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        _logger.removeHandler(handler)
        with suppress(OSError):  # told when the line was written
            stream.close()


def _add(handler: Lines, lines: JsonLines, level: int) -> Lines:
    handler.setFormatter(lines)
    handler.setLevel(level)
    _logger.addHandler(handler)
    return handler
