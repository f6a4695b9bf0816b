"""Structured logs: JSON lines on the logger `streamer`, by stream id.

They hold events and numbers, never audio. Handlers of an application find the described text as
`record.described`; our own leave it out. Nothing is written unless a handler is attached.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from contextlib import suppress
from typing import Any, TextIO

_logger = logging.getLogger("streamer")
_logger.addHandler(logging.NullHandler())


def log(event: str, stream: str, *, text: str | None = None, **numbers: Any) -> None:
    """Log `event` of `stream` at level INFO. text: the described text."""
    if _logger.isEnabledFor(logging.INFO):
        _logger.info(event, extra={"stream": stream, "numbers": numbers, "described": text})


class JsonLines(logging.Formatter):
    """A record as a line of JSON: time (s since the epoch), level, event, stream, numbers."""

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
        return json.dumps(row, ensure_ascii=False)


class Lines(logging.StreamHandler[TextIO]):
    """Writes records to a stream. If the disk is full, records are lost and the work goes on."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            with suppress(OSError):
                super().handleError(record)


def log_errors_to(stream: TextIO) -> None:
    """Write our errors, with their traceback, to `stream`: one line of JSON each."""
    handler = Lines(stream)
    handler.setFormatter(JsonLines())
    handler.setLevel(logging.ERROR)
    _logger.addHandler(handler)
