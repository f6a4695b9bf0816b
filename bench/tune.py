"""Does `streamer tune` make a model hear? In: a folder of recorded people. Out: a table, rows.

`python -m bench.tune --data DIR [--num 600]`. A thinker of the published layout that cannot tell
levels is tuned as a user would tune theirs: the shipped cloud model with noise on every product of
its text model and on the tower's projector, saved as a full model's shards with `thinker.`
prefixes. DIR holds manifest.jsonl, which names speakers; those kept apart say the sentences that
are counted, by the engine, before and after. No weight of it is kept.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from bench.common import table_of, write
from bench.keep import options_of
from streamer.extras.tune.options import TuneOptions
from streamer.model.thinker import EMBEDDED

PRODUCTS = re.compile(r"^(model\.layers\..*_proj|audio_tower\.proj)\.weight$")
NUM_SHARDS = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="recordings and a manifest.jsonl")
    parser.add_argument("--num", type=int, help="recordings of them, evenly; default all")
    parser.add_argument("--noise", type=float, default=1.5, help="over the weights' own SD")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    options = options_of(parser)
    with tempfile.TemporaryDirectory() as folder:
        rows = run(Path(folder), options)
    print(table_of(rows))
    told = {name: str(value) for name, value in vars(options).items() if name != "data"}
    print("written:", write("tune", [told, *rows]))
    return 0


def run(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    from streamer.extras.tune.command import tune

    chosen(options.data, options.num, folder / "clips")
    broken(EMBEDDED / "cloud", folder / "base", options.noise)
    since = time.monotonic()
    done = tune(
        TuneOptions(
            recordings=(str(folder / "clips"),),
            speakers=str(folder / "clips" / "manifest.jsonl"),
            model=str(folder / "base"),
            out=str(folder / "tuned"),
            epochs=options.epochs,
            rank=options.rank,
            learning_rate=options.learning_rate,
            at_once=8,
        )
    )
    print(f"in {(time.monotonic() - since) / 60:.1f} minutes, {done.steps} steps", file=sys.stderr)
    return [score.as_json() for score in done.scores]


def chosen(data: Path, num: int | None, out: Path) -> None:
    """Links to so many recordings of `data`, and their manifest."""
    rows = [json.loads(line) for line in (data / "manifest.jsonl").read_text("utf-8").splitlines()]
    rows = [row for row in rows if row["kind"] == "clip"]
    step = max(1.0, len(rows) / num) if num else 1.0
    rows = [rows[int(i * step)] for i in range(int(len(rows) / step))]
    (out / "wav").mkdir(parents=True)
    for row in rows:
        (out / row["wav"]).symlink_to((data / row["wav"]).resolve())
    lines = (json.dumps({"file": row["wav"], "speaker": row["speaker"]}) for row in rows)
    (out / "manifest.jsonl").write_text("\n".join(lines) + "\n")


def broken(directory: Path, out: Path, noise: float) -> None:
    """The model with noise on its products, in the full release's layout: shards, an index,
    `thinker.` prefixes."""
    out.mkdir()
    for file in directory.iterdir():
        if file.suffix != ".safetensors":
            shutil.copyfile(file, out / file.name)
    generator = torch.Generator().manual_seed(0)
    weights = {}
    for name, weight in sorted(load_file(directory / "model.safetensors").items()):
        if PRODUCTS.search(name):
            drawn = torch.randn(weight.shape, generator=generator)
            weight = (weight.float() + noise * weight.float().std() * drawn).to(weight.dtype)
        weights["thinker." + name] = weight
    names = sorted(weights)
    shards = [1 + i * NUM_SHARDS // len(names) for i in range(len(names))]
    places = {n: f"model-{i}.safetensors" for n, i in zip(names, shards, strict=True)}
    for file in set(places.values()):
        part = {n: weights[n].contiguous() for n in names if places[n] == file}
        save_file(part, out / file, {"format": "pt"})
    index = {"metadata": {}, "weight_map": places}
    (out / "model.safetensors.index.json").write_text(json.dumps(index))


if __name__ == "__main__":
    sys.exit(main())
