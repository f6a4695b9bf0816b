"""How long from the command to the first word, in a process of its own? In: a clip. Out: a table,
JSON lines.

`python -m bench.cold [--num 7] [--clip samples/fast_loud.wav]`. Each round starts, one after the
other, `streamer describe CLIP` and `python -c "import torch"`, so that both meet the same machine.
Wall time to the first byte of text, and CPU seconds of the whole process (four threads that wait
for each other count four times). Where the seconds of ours go is told by one more process, which
takes the same steps one by one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from bench.keep import options_of

CLIP = "samples/fast_loud.wav"
TORCH = (sys.executable, "-c", "import torch; print()")


def run(command: Sequence[str]) -> dict[str, float]:
    """One cold process: seconds to its first byte on stdout, seconds and CPU seconds until it is
    gone."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
    )
    assert process.stdout is not None
    first = process.stdout.read(1)
    first_s = time.perf_counter() - began
    process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.stdout.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    assert first, f"{command}: said nothing"
    assert process.returncode == 0, f"{command}: exit status {process.returncode}"
    return {
        "first_s": first_s,
        "all_s": time.perf_counter() - began,
        "cpu_s": used.ru_utime + used.ru_stime,
    }


def laps(clip: str) -> list[dict[str, Any]]:
    """The steps of a start, in a process of their own: [{step, cpu_s}]."""
    command = [sys.executable, "-m", "bench.cold", "--steps", "--clip", clip]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def tell_steps(clip: str) -> None:
    """Take the steps of `streamer describe` one by one; a JSON line for each on stdout."""
    from streamer.commands.process import loading

    at = [time.process_time()]

    def lap(step: str) -> None:
        now = time.process_time()
        print(json.dumps({"step": step, "cpu_s": now - at[0]}))
        at[0] = time.process_time()

    with loading():
        import streamer.commands.describe
        from streamer.config import Config

        lap("streamer's own, anyio, numpy")
        import torch  # noqa: F401

        lap("torch")
        import streamer.model.kernels.arithmetic
        import streamer.model.kernels.tower_arithmetic  # noqa: F401

        lap("numba")
        from streamer.model.kernels.threads import set_threads
        from streamer.model.thinker import load, num_params_of, resolve
        from streamer.model.warm import warm_up

        directories = [resolve("embedded", role) for role in ("edge", "cloud")]
        set_threads(max(map(num_params_of, directories)))
        lap("the model room")
        edge = load("embedded", "edge")
        cloud = load("embedded", "cloud")
        lap("weights, tokenizers, loading compiled kernels")
        warm_up(edge)
        warm_up(cloud)
        lap("warm-up, onnxruntime")
    import anyio

    from streamer.assembly.models import Models
    from streamer.assembly.parts import open_parts
    from streamer.recording import describe_recording

    models = Models(Config())
    models.__dict__["pair"] = (edge, cloud)

    async def describe() -> None:
        async with open_parts(models) as parts:
            await describe_recording(parts, clip)

    anyio.run(describe)
    lap("hearing and describing")


def main() -> None:
    options = _options()
    if options.steps:
        return tell_steps(options.clip)
    # late: it imports torch, which is one of the steps
    from bench.common import median, progress, table, write

    ours = (sys.executable, "-m", "streamer", "describe", options.clip, "--quiet")
    for command in (ours, TORCH):  # the page cache
        run(command)
    rows = []
    for _ in progress(range(options.num), "cold"):
        rows.append({"what": "round", "streamer": run(ours), "torch": run(TORCH)})
    steps = laps(options.clip)
    share = median(row["torch"]["cpu_s"] / row["streamer"]["cpu_s"] for row in rows)
    medians = [
        [name, *(median(row[who][key] for row in rows) for key in ("first_s", "cpu_s"))]
        for name, who in (("streamer describe", "streamer"), ("import torch", "torch"))
    ]
    print(table((f"median of {options.num}", "first word, s", "CPU, s"), medians))
    print(f"torch's import is {share:.0%} of the CPU time (median of paired ratios)\n")
    print(table(("step", "CPU, s"), [(step["step"], step["cpu_s"]) for step in steps]))
    print("written:", write("cold", [*rows, *({"what": "step", **step} for step in steps)]))
    return None


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num", type=int, default=7, metavar="N", help="rounds; default 7")
    parser.add_argument("--clip", default=CLIP, metavar="FILE", help=f"default {CLIP}")
    parser.add_argument("--steps", action="store_true", help=argparse.SUPPRESS)
    return options_of(parser)


if __name__ == "__main__":
    main()
