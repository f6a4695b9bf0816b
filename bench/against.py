"""Is this tree as fast as another checkout of it? In: the other's folder. Out: a table of ratios.

`python -m bench.against FOLDER [--seconds 3 10 30 60] [--modes edge gated exact]`. One process for
each tree and mode describes the same clips through `Describer.describe`, one clip in both trees
before the next, the order drawn anew each time. So a machine that drifts drifts for both. Ratios
are medians over pairs: first text, whole sentence (both since the turn's last sample) and the
whole call, hearing included. The ids of both must be the same.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent.parent
KEYS = ("first", "total", "call")


class Worker:
    """One tree's describer, in a process of its own."""

    def __init__(self, tree: Path, mode: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), "--work", mode],
            env={**os.environ, "PYTHONPATH": f"{tree}:{HERE}/tests/support"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def describe(self, seconds: float, seed: int) -> dict[str, Any]:
        """Times in ms and the ids of one clip."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([seconds, seed]), file=self._process.stdin, flush=True)
        told: dict[str, Any] = json.loads(self._process.stdout.readline())
        return told

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


async def work(mode: str) -> None:
    """The worker: a line in for each clip, a line out."""
    import numpy as np
    from speech import speech

    from streamer import Describer

    async with Describer.open(mode=mode) as describer:
        await describer.load()
        for line in sys.stdin:
            seconds, seed = json.loads(line)
            samples = np.rint(speech(seconds, seed) * 32767).astype("<i2")
            began = time.perf_counter()
            found = await describer.describe((samples, 16_000), lambda delta: None)
            call_ms = 1000 * (time.perf_counter() - began)
            told = {"first": found.ttft_ms, "total": found.total_ms, "call": call_ms}
            print(json.dumps({**told, "ids": found.ids}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("--seconds", type=float, nargs="+", default=(3, 10, 30, 60))
    parser.add_argument("--modes", nargs="+", default=("edge", "gated", "exact"))
    parser.add_argument("--num", type=int, default=24, help="pairs of each length and mode")
    from bench.common import median, table, write
    from bench.keep import options_of

    options = options_of(parser)
    rows = []
    for mode in options.modes:
        workers = [Worker(tree, mode) for tree in (HERE, options.other.resolve())]
        for seconds in options.seconds:
            rows.append(
                {"mode": mode, "seconds": seconds, **compare(workers, seconds, options.num, median)}
            )
            print(rows[-1], file=sys.stderr)
        for worker in workers:
            worker.close()
    print(table(list(rows[0]), [list(row.values()) for row in rows]))
    print("written:", write("against", rows))


def compare(workers: list[Worker], seconds: float, num: int, median: Any) -> dict[str, float]:
    """Medians over `num` pairs, after two that are dropped."""
    pairs = []
    chance = random.Random(seconds)
    for i in range(num + 2):
        order = chance.sample((0, 1), 2)
        found = {which: workers[which].describe(seconds, i % 8) for which in order}
        assert found[0]["ids"] == found[1]["ids"], f"clip {i} of {seconds:g} s: other ids"
        if i > 1:
            pairs.append((found[0], found[1]))
    row = {f"{key} ratio": median(ours[key] / other[key] for ours, other in pairs) for key in KEYS}
    return (
        row
        | {f"{key} ms": median(ours[key] for ours, _ in pairs) for key in KEYS}
        | {f"{key} ms, other": median(other[key] for _, other in pairs) for key in KEYS}
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        import anyio

        anyio.run(work, sys.argv[2])
    else:
        main()
