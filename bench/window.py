"""Time of a window of 2 s, a token and a block, for a model directory.

`python -m bench.window DIRECTORY [--engine int4] [--threads 1]` prints the tower's time, the text
model's time for the window's positions, a token's, and a block's of five ids: the least of some
rounds. With one thread its CPU time counts, so other processes do not matter.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable

import numpy as np

from bench.common import options_of, progress, table_of, write
from streamer.model.engines.engine import Row
from streamer.model.thinker import load

WINDOW_S, BLOCK = 2, 5
ID = 9  # any


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory")
    parser.add_argument("--engine", default="int4")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=4)
    options = options_of(parser)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # before the first product
    clock = time.process_time if options.threads == 1 else time.perf_counter

    def seconds(run: Callable[[], object]) -> float:
        begun = clock()
        run()
        return clock() - begun

    runs = steps_of(options.directory, options.engine)
    times = {
        what: min(seconds(run) for _ in progress(range(options.rounds), what))
        for what, run in runs.items()
    }
    of_real_time = {f"{what}, of real time": times[what] / WINDOW_S for what in ("tower", "text")}
    row = {"engine": options.engine, "threads": options.threads, **of_real_time}
    row |= {f"{what} ms": 1000 * times[what] for what in ("token", "block")}
    print(table_of([row]))
    print("written:", write("window", [row]))
    return 0


def steps_of(directory: str, engine: str) -> dict[str, Callable[[], object]]:
    made = load(directory, "cloud", num_slots=1, engine=engine).engine
    mel = np.random.default_rng(0).normal(size=(1, 128, 100 * WINDOW_S)).astype(np.float32)
    embeds = made.tower.encode(mel)[0]
    slot, first, num = made.open(), len(made.prompt_ids), len(embeds)

    def step(count: int) -> object:
        return made.step([Row(slot, first + num, [ID] * count, num_logits=count)])

    return {
        "tower": lambda: made.tower.encode(mel),
        "text": lambda: made.step([Row(slot, first, [ID] * num, embeds, 0)]),
        "token": lambda: step(1),
        "block": lambda: step(BLOCK),
    }


if __name__ == "__main__":
    sys.exit(main())
