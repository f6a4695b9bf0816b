"""One decoding step of the cloud's text model on OpenVINO, ONNX Runtime and torch, beside ours.
Out: ratios.

`pip install '.[peers]'`, then `python -m bench.peers [--rounds 200]`. All have the same weights,
one row, one token, and 100 or 1,500 positions in the cache. All have `--threads` threads; ours uses
one. The peers get the cache as it lies, and give back the new position's keys and values. So
nobody's driver copies the cache; the concatenation inside is theirs to fuse. Each arm first decodes
greedily from the same prefilled cache. The table tells how many of its tokens are those of
transformers' modules, and the largest difference of the first logits. Then all arms run in turn,
and the ratios are medians of pairs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.common import median, progress, table_of, write
from bench.keep import options_of
from bench.peers_exported import Run, Step, peers_of
from streamer.model.engines.engine import Engine, Row
from streamer.model.engines.load import load_weights
from streamer.model.engines.stock import StockText, load_stock
from streamer.model.engines.text import TextModel
from streamer.model.kernels.text import FastText
from streamer.model.thinker import resolve, shapes_of

CONTEXTS = (100, 1500)
NUM_GREEDY = 40
PROMPT = 6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200, help="timed rounds of each length")
    parser.add_argument("--threads", type=int, default=1)
    options = options_of(parser)
    torch.set_num_threads(options.threads)
    directory = resolve("embedded", "cloud")
    shape = shapes_of(directory).text
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # of exporters: what they write is checked below
        step = Step(TextModel(load_weights(directory, torch.float32, "cpu"), shape))
        peers = dict(peers_of(step, Path(folder), options.threads))
        if list(peers) == ["torch, eager"]:
            print("bench.peers: no peer is installed here; pip install '.[peers]'", file=sys.stderr)
            return 2
        ours = FastText(load_weights(directory, torch.float32, "cpu"), shape)
        texts = {"ours": ours, "transformers' modules": StockText(load_stock(directory), shape)}
        rows = [row for n in CONTEXTS for row in compare(texts, peers, n, options.rounds)]
    print(table_of(rows))
    print("written:", write("peers", rows))
    return 0


def compare(
    texts: dict[str, Any], peers: dict[str, Run], context: int, rounds: int
) -> list[dict[str, Any]]:
    """Greedy ids of every arm, then all arms in turn."""
    chance = torch.Generator().manual_seed(context)
    ids = torch.randint(0, 900, (context,), generator=chance).tolist()
    arms: dict[str, Callable[[], object]] = {}
    said = {}
    logits = {}
    for name, text in texts.items():
        engine = Engine(text, text.slots(1, PROMPT + context + NUM_GREEDY), [5] * PROMPT)
        slot = engine.open()
        at = PROMPT + context
        engine.step([Row(slot, PROMPT, ids, num_logits=0)])
        if isinstance(text, StockText):
            parts = (engine.slots.keys, engine.slots.values)
            keys, values = (part[:, 0, :, :at].numpy().copy() for part in parts)

        def say(token, i, engine=engine, at=at):
            return engine.step([Row(0, at + i, [token])])[0].numpy()

        said[name], logits[name] = greedy(say)
        arms[name] = lambda engine=engine, at=at: engine.step([Row(0, at, [7])])
    for name, run in peers.items():
        said[name], logits[name] = greedy(_Growing(run, keys, values))
        arms[name] = lambda run=run: run(7, PROMPT + context, keys, values)
    times: dict[str, list[float]] = {name: [] for name in arms}
    for i in progress(range(rounds + 5), f"{context} positions"):
        for name, arm in arms.items():
            arm()
            started = time.perf_counter()
            arm()
            if i >= 5:
                times[name].append(1000 * (time.perf_counter() - started))
    wanted = "transformers' modules"
    rows = []
    for name, of_arm in times.items():
        num_same = sum(a == b for a, b in zip(said[name], said[wanted], strict=True))
        rows.append(
            {
                "context": context,
                "arm": name,
                "ms": median(of_arm),
                "ratio to ours": median(t / o for t, o in zip(of_arm, times["ours"], strict=True)),
                "same ids": f"{num_same} of {NUM_GREEDY}",
                "largest difference": f"{abs(logits[name] - logits[wanted]).max():.1e}",
            }
        )
    return rows


def greedy(say: Callable[[int, int], np.ndarray]) -> tuple[list[int], np.ndarray]:
    """NUM_GREEDY ids, and the logits of the first; `say` gives logits [1, vocab] of an id, the
    i-th."""
    ids = []
    first = None
    token = 7
    for i in range(NUM_GREEDY):
        logits = say(token, i)
        first = np.array(logits) if first is None else first
        token = int(logits[0].argmax())
        ids.append(token)
    assert first is not None
    return ids, first


class _Growing:
    """A peer's cache: what it gave back is put behind what it was given."""

    def __init__(self, run: Run, keys: np.ndarray, values: np.ndarray) -> None:
        self._run = run
        self._keys = keys
        self._values = values

    def __call__(self, token: int, i: int) -> np.ndarray:
        logits, key, value = self._run(token, self._keys.shape[2], self._keys, self._values)
        self._keys = np.concatenate([self._keys, key], 2)
        self._values = np.concatenate([self._values, value], 2)
        return logits


if __name__ == "__main__":
    sys.exit(main())
