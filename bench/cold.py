"""How long from the command to the first word, in a process of its own? In: a clip. Out: a table,
JSON lines.

`python -m bench.cold [--num 7] [--clip samples/fast_loud.wav] [--against TREE]`. Each round starts
`streamer describe CLIP`, and the same of another checkout of this project, one after the other, so
that both meet the same machine. Wall time to the first byte of text, CPU seconds of the whole
process, and the most memory it held.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.keep import options_of

CLIP = "samples/fast_loud.wav"
HERE = Path(__file__).parent.parent
KEYS = ("first_s", "cpu_s", "megabytes")


def run(tree: Path, clip: str) -> dict[str, float]:
    """One cold process: seconds to its first byte on stdout, CPU seconds, most memory."""
    began = time.perf_counter()
    command = (sys.executable, "-m", "streamer", "describe", str(HERE / clip), "--quiet")
    process = subprocess.Popen(
        command,
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    )
    assert process.stdout is not None
    first = process.stdout.read(1)
    first_s = time.perf_counter() - began
    process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.stdout.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    assert first, f"{tree}: said nothing"
    assert process.returncode == 0, f"{tree}: exit status {process.returncode}"
    cpu_s = used.ru_utime + used.ru_stime
    return {"first_s": first_s, "cpu_s": cpu_s, "megabytes": used.ru_maxrss / 1024}


def main() -> None:
    options = _options()
    from bench.common import median, progress, table, write  # late: it imports torch

    trees = {"here": HERE, **({"against": options.against.resolve()} if options.against else {})}
    for tree in trees.values():  # the page cache, and kernels that are not compiled yet
        run(tree, options.clip)
    rows: list[dict[str, Any]] = []
    for i in progress(range(options.num), "cold"):
        names = list(trees) if i % 2 else list(trees)[::-1]
        rows.append({name: run(trees[name], options.clip) for name in names})
    medians = [[name, *(median(row[name][key] for row in rows) for key in KEYS)] for name in trees]
    if options.against:
        ratios = [median(row["here"][key] / row["against"][key] for row in rows) for key in KEYS]
        medians.append(["here / against, paired", *ratios])
    header = (f"median of {options.num}", "first word, s", "CPU, s", "most memory, MB")
    print(table(header, medians))
    print("written:", write("cold", rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num", type=int, default=7, metavar="N", help="rounds; default 7")
    parser.add_argument("--clip", default=CLIP, metavar="FILE", help=f"default {CLIP}")
    parser.add_argument("--against", type=Path, metavar="TREE", help="another checkout")
    return options_of(parser)


if __name__ == "__main__":
    main()
