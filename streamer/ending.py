"""A process that was interrupted ends. In: its exit status. Out: nothing; at the latest after a grace, no process."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress

INTERRUPTED = 130  # as shells count SIGINT
GRACE_S = 5.0


def end_within(status: int, grace_s: float = GRACE_S) -> None:
    """What is said is written now. Should a thread hold the process back after that (seen once in some hundred runs on
    a busy machine), it ends with `status` all the same: nothing is left to be saved."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    timer = threading.Timer(grace_s, os._exit, (status,))
    timer.daemon = True
    timer.start()
