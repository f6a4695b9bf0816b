"""Opening what a path or stdin names.

A pipe is copied to a temporary file, because decoders seek.
"""

from __future__ import annotations

import io
import os
import select
import stat
import sys
import tempfile
from collections.abc import Callable
from typing import IO

from streamer.audio.source import AudioError, line_of, recordings_in

MAX_SPOOL_BYTES = 4 << 30  # of a pipe: as much as a WAV header can promise
LOOK_MS = 100  # how often a reader of a silent pipe looks whether it is still wanted


def open_path(path: str, is_over: Callable[[], bool]) -> IO[bytes]:
    """A file that can seek. Raises AudioError."""
    try:
        handle = open(path, "rb", opener=_opened_at_once)  # noqa: SIM115 - AudioFile closes it
    except FileNotFoundError:
        raise AudioError(path, "no such file") from None
    except IsADirectoryError:
        told = "is a directory; name the files in it, e.g. DIRECTORY/*.wav"
        if recordings_in(path) == [path]:  # a command has looked into it, and found none
            told = "is a directory that holds no recording by name, such as *.wav or *.mp3"
        raise AudioError(path, told) from None
    except (OSError, ValueError) as error:
        raise AudioError(path, f"cannot be opened ({line_of(error)})") from None
    status = os.fstat(handle.fileno())
    if not stat.S_ISREG(status.st_mode):
        with handle:
            return spooled(path, handle, is_over)
    if status.st_size == 0:
        handle.close()
        raise AudioError(path, "is empty (0 bytes)")
    return handle


def _opened_at_once(path: str, flags: int) -> int:
    """Open a named pipe without waiting for its writer: the reader waits, and can be ended."""
    number = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(number, True)
    return number


def open_stdin(is_over: Callable[[], bool]) -> IO[bytes]:
    """A copy of stdin. Raises AudioError."""
    if sys.stdin is None or sys.stdin.closed:
        raise AudioError("-", "stdin is closed; pipe a recording into it")
    if not hasattr(sys.stdin, "buffer"):  # as in a notebook, or under a test runner
        raise AudioError("-", "stdin holds text here; give a file, or an open binary one")
    if sys.stdin.isatty():
        raise AudioError("-", "stdin is a terminal; pipe a recording into it")
    return spooled("-", sys.stdin.buffer, is_over)


def spooled(path: str, stream: IO[bytes], is_over: Callable[[], bool]) -> IO[bytes]:
    """A temporary file with the rest of the stream, gone when it is closed. Raises AudioError, and
    TypeError for a stream of text."""
    try:
        spool = tempfile.TemporaryFile()  # noqa: SIM115 - AudioFile closes it
    except OSError as error:
        raise _no_room(path, error) from None
    try:
        read = _reader_of(path, stream, is_over)
        while piece := read(1 << 20):
            if spool.tell() + len(piece) > MAX_SPOOL_BYTES:
                limit = f"{MAX_SPOOL_BYTES >> 30} GiB"
                raise AudioError(path, f"brings more than {limit}; write it to a file first")
            try:
                spool.write(piece)
                spool.flush()
            except OSError as error:
                raise _no_room(path, error) from None
        if spool.tell() == 0:
            way = "pipe a recording into it" if path == "-" else "an open file may stand at its end"
            raise AudioError(path, f"brings no data; {way}")
        spool.seek(0)
    except OSError as error:
        spool.close()
        raise AudioError(path, f"cannot be read ({line_of(error)})") from None
    except BaseException:
        spool.close()
        raise
    return spool


def _no_room(path: str, error: OSError) -> AudioError:
    told = f"cannot be kept in a temporary file ({line_of(error)})"
    return AudioError(path, f"{told}; make room, or set TMPDIR")


def _reader_of(path: str, stream: IO[bytes], is_over: Callable[[], bool]) -> Callable[[int], bytes]:
    """`stream.read`, or for a pipe a `read` that stops waiting when `is_over` says so. A thread
    that blocks inside a read cannot be ended, so the program's end would wait for it."""
    raw = getattr(stream, "raw", stream)
    if not isinstance(raw, io.FileIO):  # another stream may hold data in a buffer
        return stream.read
    if stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
        return stream.read
    read_some: Callable[[int], bytes | None] = getattr(stream, "read1", stream.read)
    poll = select.poll()
    poll.register(raw.fileno(), select.POLLIN)

    def read(size: int) -> bytes:
        while True:
            if not poll.poll(LOOK_MS):
                if is_over():
                    raise AudioError(path, "is no longer wanted")
            elif (piece := read_some(size)) is not None:  # None: another reader took it
                return piece

    return read
