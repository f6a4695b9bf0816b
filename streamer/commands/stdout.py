"""The process's stdout in; one whose errors are told from a recording's out: a full disk is no
defect of ours."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class StdoutLost(BrokenPipeError):
    """stdout cannot be written, and not since its reader went away. Passes wherever BrokenPipeError
    does."""


class _Stdout(io.TextIOWrapper):
    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise StdoutLost(error.errno, error.strerror) from None

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise StdoutLost(error.errno, error.strerror) from None


@contextmanager
def guarded_stdout() -> Iterator[None]:
    """While inside, writing to stdout raises StdoutLost; one that is not the process's own is left
    as it is.

    Raises StdoutLost, BrokenPipeError, also at the end, when what is held is written.
    """
    own = sys.stdout
    if own is not sys.__stdout__ or not isinstance(own, io.TextIOWrapper):
        yield
        return
    guarded = _Stdout(
        own.buffer, own.encoding, "backslashreplace", line_buffering=own.line_buffering
    )
    sys.stdout = guarded
    try:
        try:
            yield
        finally:
            guarded.flush()
    # what is still held goes nowhere: the interpreter would try again at its end, and complain
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, own.fileno())
        os.close(nowhere)
        raise
    finally:
        sys.stdout = own
        guarded.detach()
