"""Do runs of blocks win anything a user sees? In: clips. Out: with and without, turn about.

`python -m bench.runs FOLDER_OF_WAVS`: first text, whole sentence, and the CPU's time for a whole
session (streams sustained go with its inverse), by live sessions on the embedded pair.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from pathlib import Path

import soundfile

from bench.common import table
from streamer.core.decoding import pace
from streamer.core.description import Description
from streamer.describer import Describer


async def one(describer: Describer, pcm: bytes) -> tuple[float, float, float]:
    async with describer.session(sample_rate=16_000) as s:
        spent = time.process_time()
        for at in range(0, len(pcm), 3_200):
            await s.feed(pcm[at : at + 3_200])
        await s.commit()
        async for event in s:
            if isinstance(event, Description):
                spent = time.process_time() - spent
                return event.ttft_ms, event.total_ms, 1000 * spent
    raise AssertionError


async def run(folder: Path, num: int, times: int) -> None:
    rows = []
    clips = [soundfile.read(f, dtype="int16")[0].tobytes() for f in sorted(folder.rglob("*.wav"))[:num]]
    for mode in ("edge", "gated"):
        async with Describer.open(mode=mode) as describer:
            found = {0.004: [], 0.0: []}
            for pcm in clips[:4]:
                await one(describer, pcm)
            for i in range(times):
                for pcm in clips:
                    for run_s in ((0.004, 0.0), (0.0, 0.004))[i % 2]:
                        pace.RUN_S = run_s
                        found[run_s].append(await one(describer, pcm))
        for i, what in enumerate(("first text", "whole sentence", "CPU of a session")):
            a, b = (statistics.median(f[i] for f in found[s]) for s in (0.004, 0.0))
            low = [statistics.quantiles([f[i] for f in found[s]], n=10)[0] for s in (0.004, 0.0)]
            pairs = statistics.median(x[i] / y[i] for x, y in zip(found[0.004], found[0.0]))
            rows.append([mode, what, a, b, a / b, low[0], low[1], low[0] / low[1], pairs])
    print(table(["mode", "ms", "with", "without", "ratio", "p10 with", "p10 without", "ratio", "paired"], rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--num", type=int, default=24)
    parser.add_argument("--times", type=int, default=8)
    o = parser.parse_args()
    asyncio.run(run(o.folder, o.num, o.times))


if __name__ == "__main__":
    main()
