"""Is anything that was committed ever lost, doubled, reordered or changed? In: a number of
schedules. Out: what was done to how many turns, JSON lines.

`python -m bench.faults --schedules 2000 [--first 0] [--at-once 16]`. Each schedule is drawn from
its number: a client with a few turns, an edge, a verifier, and kills, stops, cuts, delays, jumps of
the clock. Servers, links, stages and sockets are the real ones, the models toys that hear every
sample (tests/support/schedules.py). Afterwards the history of each client is checked.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections import Counter
from pathlib import Path

from tqdm import tqdm

from bench.common import options_of, table, write

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))


async def run_all(seeds: range, at_once: int) -> tuple[Counter[str], list[int]]:
    """(what was done, the schedules that failed)."""
    from schedules import draw, run

    done: Counter[str] = Counter()
    failed: list[int] = []
    free = asyncio.Semaphore(at_once)

    async def one(seed: int) -> None:
        async with free:
            schedule = draw(seed)
            try:
                found = await run(schedule)
            except AssertionError as error:
                failed.append(seed)
                tqdm.write(f"schedule {seed} ({schedule.kind}): {error!r}"[:500])
                return
            done.update(found)
            done[schedule.kind] += 1

    with tqdm(total=len(seeds), desc="schedules", disable=None) as bar:
        async with asyncio.TaskGroup() as group:
            for seed in seeds:
                group.create_task(one(seed)).add_done_callback(lambda _: bar.update())
    return done, failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedules", type=int, default=50, metavar="N", help="how many")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first one's number")
    parser.add_argument("--at-once", type=int, default=16, metavar="N", help="in one event loop")
    options = options_of(parser)
    logging.getLogger("streamer.notice").disabled = True
    started, cpu = time.perf_counter(), time.process_time()
    seeds = range(options.first, options.first + options.schedules)
    done, failed = asyncio.run(run_all(seeds, options.at_once))
    used = {"seconds": time.perf_counter() - started, "cpu_s": time.process_time() - cpu}
    print(table(("what", "times"), sorted(done.items())))
    print(f"{len(seeds) - len(failed)} of {len(seeds)} schedules whole, {used['seconds']:.0f} s")
    print("written:", write("faults", [{"failed": failed, **used, **done}]))
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
