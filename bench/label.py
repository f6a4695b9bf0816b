"""How fast is `streamer label`? In: a folder of recordings. Out: seconds of audio for one of CPU.

    python -m bench.label --people DIR [--num 100] [--keep]

The command itself runs, with one process: once for two recordings, once for all of them. The
difference of both is the work, without the start. Its CPU time is what a core needs, also where
others want the machine; the time that passed is told beside it.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import soundfile

from bench.common import table_of, write
from bench.keep import options_of
from bench.measures import chosen

NUM_BEFORE = 2
MODES = ("gated", "edge")
NAMES = ["mode", "clips", "audio s", "x real time per core", "x real time passed"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=Path, required=True)
    parser.add_argument("--num", type=int, default=100)
    options = options_of(parser)
    files = [row["file"] for row in chosen(options)]
    rows = [row_of(mode, files) for mode in MODES]
    print(table_of(rows))
    print(write("label", rows))


def row_of(mode: str, files: Sequence[Path]) -> dict[str, Any]:
    """One mode's figures."""
    first_cpu_s, first_s = labelled(mode, files[:NUM_BEFORE])
    cpu_s, passed_s = labelled(mode, files)
    audio_s = sum(soundfile.info(file).duration for file in files[NUM_BEFORE:])
    found = [audio_s, audio_s / (cpu_s - first_cpu_s), audio_s / (passed_s - first_s)]
    return dict(zip(NAMES, [mode, len(files), *found], strict=True))


def labelled(mode: str, files: Sequence[Path]) -> tuple[float, float]:
    """(seconds of CPU, seconds that passed) of one run of the command."""
    with tempfile.TemporaryDirectory() as folder:
        out = ["--out", str(Path(folder) / "labels.jsonl"), "--jobs", "1", "--mode", mode]
        command = [sys.executable, "-m", "streamer", "label", *map(str, files), *out]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begun = time.perf_counter()
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu_s, time.perf_counter() - begun


if __name__ == "__main__":
    main()
