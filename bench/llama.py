"""Are 8 and 4 bits as fast as llama.cpp's? In: a published shape. Out: a table_of, JSON lines.

`python -m bench.llama --python ENV/bin/python [--size 3b] [--threads 2]`, 6 minutes and 10 GB: a
step of one token, one of five (a verified block), and the first token after a turn of 30 s, on the
same shape with random weights, turn about, the least of some rounds. Of one thread its own time
counts, whatever else runs. ENV is an environment with llama-cpp-python and gguf. llama.cpp has
heard nothing when the turn ends: it reads 750 positions. We have heard all but the last window: its
tower, its 50 positions, and what we lag behind where a window takes longer than it lasts.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from bench.common import merge, progress, table_of
from bench.keep import options_of
from bench.llama_side import clock_of
from bench.processes import started
from bench.shapes import SIZES, drawn, of_layers
from streamer.model.checkpoint.layout import expected
from streamer.model.checkpoint.shapes import Shapes
from streamer.model.engines.engine import Engine, Row
from streamer.model.few_bits.model import FewBitsText, FewBitsTower
from streamer.model.few_bits.parts import Part, names_of, part_of

KINDS = {8: ("Q8_0",), 4: ("Q4_0", "Q4_K")}
PROMPT, TURN_S, WINDOW, SUFFIX = 6, 30, 50, 5  # ids, seconds, positions of 2 s, ids
READ = PROMPT + 25 * TURN_S + SUFFIX
BLOCK = 5
POSITIONS = READ + WINDOW + 32
Arm = Callable[[], float]  # milliseconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="of llama.cpp's environment")
    parser.add_argument("--size", choices=SIZES, default="3b")
    parser.add_argument("--layers", type=int, default=10**6, help="of text model and tower")
    parser.add_argument("--bits", type=int, nargs="+", choices=KINDS, default=[8, 4])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    options = options_of(parser)
    have = subprocess.run([options.python, "-c", "import llama_cpp, gguf"], capture_output=True)
    if have.returncode:
        way = "pip install llama-cpp-python gguf, into an environment of its own; then --python"
        print(f"bench.llama: llama.cpp is not in {options.python}; {way}", file=sys.stderr)
        return 2
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # ours; before the first product
    torch.set_num_threads(1)  # as where they are loaded: few_bits/prepared.py
    shapes = of_layers(SIZES[options.size], options.layers)
    rows = [row for bits in options.bits for row in measured(shapes, bits, options)]
    print(table_of(rows))
    told = {"size": options.size, "layers": shapes.text.layers}
    print("written:", merge("llama", [{**row, **told} for row in rows]))
    return 0


def measured(shapes: Shapes, bits: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row per arm of so many bits."""
    with ExitStack() as stack:
        arms = {f"int{bits}": ours(shapes, f"int{bits}", clock_of(options.threads))}
        for kind in KINDS[bits]:
            given = ("--kind", kind, "--shape", json.dumps(asdict(shapes.text)))
            given += ("--threads", str(options.threads), "--positions", str(POSITIONS))
            command = started("bench.llama_side", *given, python=options.python)
            arms[kind] = theirs(stack.enter_context(command)[0])
        times: dict[str, dict[str, list[float]]] = {
            name: {what: [] for what in of} for name, of in arms.items()
        }
        rounds = {"one": options.rounds, "block": options.rounds, "window": 2, "first": 1}
        for what, num in rounds.items():
            for _ in progress(range(num), f"{bits} bits, {what}"):
                for name, of in arms.items():
                    time.sleep(0.05)  # the last one's threads no longer wait on the cores
                    if what in of:
                        times[name][what].append(of[what]())
    found = [
        row_of(name, {what: min(each) for what, each in of.items()}) for name, of in times.items()
    ]
    return [
        {"name": f"{row['arm']}, {options.threads} threads", **row, **against(row, found)}
        for row in found
    ]


def row_of(name: str, ms: dict[str, float]) -> dict[str, Any]:
    first_s = in_time_s = ms["first"] / 1000
    share: float | str = ""
    if "window" in ms:
        share = ms["window"] / 2000
        first_s += TURN_S * max(0.0, ms["window"] / 2000 - 1)
    return {
        "arm": name,
        "tokens/s": 1000 / ms["one"],
        "step ms": ms["one"],
        "block ms": ms["block"],
        "first token s": first_s,
        "where it does not lag s": in_time_s,
        "hears, of real time": share,
    }


def against(row: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, float]:
    """Ours, over this row's: tokens/s and blocks/s above 1 are ours, first tokens below 1 are."""
    own = rows[0]
    return {
        "tokens/s, ours over": own["tokens/s"] / row["tokens/s"],
        "blocks/s, ours over": row["block ms"] / own["block ms"],
        "first, ours over": own["first token s"] / row["first token s"],
    }


def theirs(process: subprocess.Popen[str]) -> dict[str, Arm]:
    def asked(line: str) -> float:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()
        return float(process.stdout.readline())

    return {
        "first": lambda: asked(f"first {READ}"),
        "one": lambda: asked(f"step {READ} 1"),
        "block": lambda: asked(f"step {READ} {BLOCK}"),
    }


def ours(shapes: Shapes, engine: str, clock: Callable[[], float]) -> dict[str, Arm]:
    """What is timed of an engine: one slot, its context filled with noise."""
    parts = parts_of(shapes, engine)
    text = FewBitsText(parts, shapes.text)
    made = Engine(text, text.slots(1, POSITIONS), [5] * PROMPT, FewBitsTower(parts, shapes.audio))
    slot = made.open()
    for kept in (made.slots.keys, made.slots.values):
        kept[:, slot] = np.random.default_rng(0).normal(size=kept[:, slot].shape)
    mel = torch.randn(1, shapes.audio.num_mels, 2 * shapes.audio.n_window).numpy()

    def heard(ids: int, num_logits: int) -> None:
        """The last window, and ids behind it."""
        embeds = made.encode(mel)[0]
        given = [9] * (WINDOW + ids)
        made.step([Row(slot, READ - len(given), given, embeds, num_logits)])

    def timed(run: Callable[[], object]) -> Arm:
        def arm() -> float:
            begun = clock()
            run()
            return 1000 * (clock() - begun)

        return arm

    def step(q: int) -> object:
        return made.step([Row(slot, READ, [9] * q, num_logits=q)])

    return {
        "first": timed(lambda: heard(SUFFIX, 1)),
        "window": timed(lambda: heard(0, 0)),
        "one": timed(lambda: step(1)),
        "block": timed(lambda: step(BLOCK)),
    }


def parts_of(shapes: Shapes, engine: str) -> dict[str, Part]:
    """A model's parts of random weights; a half's layers are copies of its first."""
    sizes = dict(expected(shapes))
    generator = torch.Generator().manual_seed(0)

    def take(name: str) -> torch.Tensor:
        return drawn(name, sizes[name], generator).view(sizes[name])

    parts: dict[str, Part] = {}
    for name in progress(names_of(shapes), engine):
        half, _, i = name.partition(".")
        is_copy = i not in ("", "0")
        parts[name] = (
            copy.deepcopy(parts[f"{half}.0"])
            if is_copy
            else part_of(name, take, shapes.text, engine)
        )
    return parts


if __name__ == "__main__":
    sys.exit(main())
