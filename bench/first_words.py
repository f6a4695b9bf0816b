"""Time to the first attribute word and to the whole sentence, by mode and length.

    python -m bench.first_words [--num 6] [--against TREE] [--cold 5]

A turn is fed to a live session: everything but its last 100 ms is heard first, then the clock
starts with the last 100 ms and the commit. The first attribute word is the first phrase of the
model's card (such as 语速偏快) that is complete in the text so far.

--against TREE measures another checkout beside this one. Each tree has one process per mode, and
the clips go to both in turn, so that a busy machine slows both. Ratios and differences are medians
over pairs of the same clip. --cold N also times N whole `streamer describe` processes of each tree.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.common import ROOT, median, options_of, progress, table_of, write

MODES = ("edge", "gated", "exact", "cloud")
LENGTHS = (3, 10, 30, 60)
TIMES = ("first_ms", "total_ms")
WORKER = Path(__file__).with_name("first_words_worker.py")
SAMPLE = ROOT / "samples" / "plain.wav"


class Tree:
    """A checkout whose processes are measured."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        own = self.folder / ".venv" / "bin" / "python"
        self._python = str(own) if own.exists() else sys.executable
        environment = os.environ | {"PYTHONPATH": str(self.folder)}
        self._place: dict[str, Any] = {"env": environment, "cwd": self.folder}
        self._worker: subprocess.Popen[str] | None = None

    def open(self, mode: str) -> None:
        """Start the worker of this mode and wait until its models are warm."""
        self.close()
        command = [self._python, str(WORKER), mode, str(SAMPLE)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._worker = subprocess.Popen(command, text=True, **pipes, **self._place)
        self._read()

    def describe(self, wav: Path) -> dict[str, float]:
        """first_ms, total_ms of one turn, and its num_tokens."""
        assert self._worker is not None
        assert self._worker.stdin is not None
        self._worker.stdin.write(f"{wav}\n")
        self._worker.stdin.flush()
        return self._read()

    def cold(self) -> dict[str, float]:
        """Wall and CPU seconds of one `streamer describe` process."""
        before, started = os.times(), time.perf_counter()
        command = [self._python, "-m", "streamer", "describe", str(SAMPLE), "--quiet"]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True, **self._place)
        after = os.times()
        cpu_s = after.children_user + after.children_system
        cpu_s -= before.children_user + before.children_system
        return {"wall_s": time.perf_counter() - started, "cpu_s": cpu_s}

    def close(self) -> None:
        if self._worker is not None:
            self._worker.terminate()
            self._worker.wait()
            self._worker = None

    def _read(self) -> dict[str, float]:
        assert self._worker is not None
        assert self._worker.stdout is not None
        line = self._worker.stdout.readline()
        if not line:
            raise SystemExit(f"the worker of {self.folder} ended; its error is above")
        answer: dict[str, float] = json.loads(line)
        return answer


def measure(
    trees: Sequence[Tree], mode: str, clips: Sequence[Path], repeats: int, what: str
) -> dict[str, Any]:
    """Medians of the first tree and, with a second one, of their pairs."""
    found: list[list[dict[str, float]]] = [[] for _ in trees]
    for clip in progress(clips, what):
        for _ in range(repeats):
            for tree, times in zip(trees, found, strict=True):
                times.append(tree.describe(clip))
    row: dict[str, Any] = {"mode": mode}
    for name in TIMES:
        row[name] = median(one[name] for one in found[0])
        if len(trees) > 1:
            pairs = list(zip(*found, strict=True))
            row[f"{name} there"] = median(one[name] for one in found[1])
            row[f"{name} later"] = median(a[name] - b[name] for a, b in pairs)
    return row


def cold(trees: Sequence[Tree], num: int) -> list[dict[str, Any]]:
    """Medians of whole processes, the trees in turn."""
    found: list[list[dict[str, float]]] = [[] for _ in trees]
    for _ in progress(range(num + 1), "cold starts"):
        for tree, times in zip(trees, found, strict=True):
            times.append(tree.cold())
    return [
        {
            "tree": str(tree.folder),
            "wall_s": median(t["wall_s"] for t in times[1:]),
            "cpu_s": median(t["cpu_s"] for t in times[1:]),
        }
        for tree, times in zip(trees, found, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num", type=int, default=6, help="clips of each length")
    parser.add_argument("--repeats", type=int, default=3, help="turns of each clip")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="seconds")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--against", type=Path, metavar="TREE", help="another checkout")
    parser.add_argument("--cold", type=int, default=0, metavar="N", help="whole processes to time")
    options = options_of(parser)
    from bench.clips import held_out

    trees = [Tree(ROOT), *([Tree(options.against)] if options.against else [])]
    clips = {s: [clip.path for clip in held_out(options.num, s)] for s in options.lengths}
    rows = []
    for mode in options.modes:
        for tree in trees:
            tree.open(mode)
        for seconds, some in clips.items():
            row = measure(trees, mode, some, options.repeats, f"{mode}, {seconds} s")
            rows.append({"seconds": seconds, **row})
            print(table_of(rows[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    for tree in trees:
        tree.close()
    print(table_of(rows))
    starts = cold(trees, options.cold) if options.cold else []
    if starts:
        print(table_of(starts))
    print("written:", write("first_words", [*rows, *starts]))


if __name__ == "__main__":
    main()
