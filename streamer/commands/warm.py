"""`streamer warm`: compiles the embedded pair's kernels before the first run."""

from __future__ import annotations

import time

from streamer.commands.options import WarmOptions
from streamer.commands.process import loading, put


def run(options: WarmOptions) -> int:
    """The exit status: 1 if the kernels cannot be kept on disk."""
    started = time.perf_counter()
    with loading("the embedded pair", is_service=True, is_ahead=True):
        from streamer.model.kernels.library import USUAL, kernel, kernel_directory

        for name in USUAL:
            kernel(name)
    directory, is_kept = kernel_directory()
    if not is_kept:  # a warning has said why
        return 1
    put(f"kernels are kept in {directory} ({time.perf_counter() - started:.1f} s)")
    return 0
