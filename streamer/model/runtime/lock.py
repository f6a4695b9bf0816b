"""One process at a time. In: an open file or folder. Out: whether it is ours."""

from __future__ import annotations

from typing import TextIO


def is_ours(file: int | TextIO) -> bool | None:
    """Take it until it is closed, which the end of a process does too, however it dies. False where
    another process, or another open file of this one, has it. None where the file system knows no
    locks: one may go on, but what lies there may be in another's hands."""
    import fcntl  # late: what only reads a model needs none

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
