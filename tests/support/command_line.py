"""The command line as a process. In: arguments. Out: status, stdout, stderr."""

from __future__ import annotations

import os
import subprocess
import sys

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8", "COLUMNS": "100"}


def streamer(*args, stdin=None):
    command = [sys.executable, "-m", "streamer", *map(str, args)]
    done = subprocess.run(
        command, capture_output=True, env=ENVIRONMENT, input=stdin, timeout=120, check=False
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()
