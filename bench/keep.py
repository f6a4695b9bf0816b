"""Where a bench's files go. In: --keep or not. Out: bench/results, which is tracked, or
.cache/bench/results.

Nothing else decides it. This module imports nothing heavy, because bench.cold times imports.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

RESULTS = Path(__file__).parent / "results"  # what docs/measured.md tells
OWN = Path(__file__).parent.parent / ".cache" / "bench" / "results"

folder = OWN


def options_of(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None = None
) -> argparse.Namespace:
    """The bench's options, and one that all have: --keep."""
    global folder
    told = "write to bench/results, whose figures the docs tell; default .cache/bench/results"
    parser.add_argument("--keep", action="store_true", help=told)
    options = parser.parse_args(argv)
    folder = RESULTS if options.keep else OWN
    return options


def place(name: str) -> Path:
    """The file `name` among this run's results; its folder is made where there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name
