"""How much memory and time does loading a large model take? In: a model directory. Out: a table.

`python -m bench.loading DIRECTORY [--engines int8 int4]`, DIRECTORY from bench.shapes or a release:
each engine in a process of its own, from the checkpoint and as `streamer models --prepare` leaves
it. Peak: the most memory (RSS) while loading over what is held afterwards, before a slot is there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.common import progress, table_of, write
from bench.keep import options_of

ENGINES = ("fast", "int8", "int4")
ONE = """
import json, sys, time
from pathlib import Path
import torch
from streamer.model.checkpoint.room import weight_bytes
from streamer.model.engines.load import load_torch
from streamer.model.few_bits.prepared import Prepared, load_few_bits
from streamer.model.thinker import shapes_of

def memory(which):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(which))

directory, engine, prepare = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "prepare"
shapes = shapes_of(directory)
before = memory("VmRSS")
started = time.perf_counter()
if prepare:
    Prepared(directory, shapes, engine).write(lambda done, total: None)
else:
    few = engine in ("int8", "int4")
    kept = load_few_bits(directory, shapes, engine) if few else load_torch(
        directory, shapes, "cpu", engine
    )
took = time.perf_counter() - started
print(json.dumps({"s": took, "weights_gb": weight_bytes(shapes, engine) / 1e9,
    "held_gb": (memory("VmRSS") - before) / 1e9, "peak_gb": (memory("VmHWM") - before) / 1e9}))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=["int8", "int4"])
    options = options_of(parser)
    rows = list(measured(options.directory, options.engines))
    print(table_of(rows))
    print("written:", write("loading", [{"engines": options.engines}, *rows]))
    return 0


def measured(directory: Path, engines: list[str]) -> list[dict[str, Any]]:
    """A row per engine and way of loading; what is prepared is thrown away at the end."""
    ways = [
        (e, way) for e in engines for way in (("", "prepare", "prepared") if e != "fast" else ("",))
    ]
    with tempfile.TemporaryDirectory(dir=directory.parent) as cache:
        return [_one(directory, *each, cache) for each in progress(ways, "loading")]


def _one(directory: Path, engine: str, way: str, cache: str) -> dict[str, Any]:
    env = {**os.environ, "STREAMER_CACHE": cache}
    command = [sys.executable, "-c", ONE, str(directory), engine, way]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout)
    row = {"engine": engine, "way": way or "from the checkpoint", **found}
    return row | {"peak / weights": found["peak_gb"] / found["weights_gb"]}


if __name__ == "__main__":
    sys.exit(main())
