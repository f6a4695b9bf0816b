"""In: two models, held-out shards. Out: for one attribute, which level was said for which level
there was, as PNG."""

import argparse
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from pipelines.embedded.evaluate import LENGTHS_S, describe_all, held_out_turns, open_model
from pipelines.embedded.joint import Prompted
from pipelines.embedded.labels import ATTRIBUTES, NUM_LEVELS
from pipelines.embedded.sentences import parse


def count(model, folder: Path, num: int, seconds: float, attribute: str) -> np.ndarray:
    """[n_levels, n_levels + 1] counts over `num` turns: a row is the level there was, the last
    column "not said"."""
    turns, prompted = held_out_turns(folder, num, seconds), Prompted()
    table = np.zeros((NUM_LEVELS[attribute], NUM_LEVELS[attribute] + 1), int)
    answers = describe_all(model, prompted, [torch.from_numpy(turn.mel) for turn in turns])
    for turn, ids in zip(turns, answers, strict=True):
        said = parse(prompted.tokenizer.decode(ids))[attribute]
        table[turn.levels[attribute], -1 if said is None else said] += 1
    return table


def draw(axis, table: np.ndarray, title: str) -> None:
    """One table as shares of its rows, the counts written into it."""
    levels = table[:, :-1]
    shares = levels / np.maximum(table.sum(1, keepdims=True), 1)
    axis.imshow(shares, vmin=0, vmax=1, cmap="Blues")
    for (row, column), number in np.ndenumerate(levels):
        colour = "white" if shares[row, column] > 0.5 else "0.3"
        axis.text(column, row, str(number), ha="center", va="center", color=colour)
    right = np.trace(levels) / table.sum()
    axis.set(title=f"{title}: {right:.2f} right", xlabel="level said", ylabel="level there was")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edge", default="streamer/model/embedded/edge")
    parser.add_argument("--cloud", default="streamer/model/embedded/cloud")
    parser.add_argument("--data", type=Path, required=True, help="shards of held-out voices")
    parser.add_argument("--attribute", choices=ATTRIBUTES, default="rate")
    parser.add_argument("--num", type=int, default=165, help="turns of each length")
    parser.add_argument("--out", type=Path, default=Path("rate_confusion.png"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    figure = Figure(figsize=(4 * len(LENGTHS_S), 8), layout="tight")
    axes = figure.subplots(2, len(LENGTHS_S))
    for row, (name, spec) in zip(axes, (("edge", args.edge), ("cloud", args.cloud)), strict=True):
        model = open_model(spec)
        for axis, seconds in zip(row, LENGTHS_S, strict=True):
            table = count(model, args.data, args.num, seconds, args.attribute)
            print(name, seconds, table.tolist(), flush=True)
            draw(axis, table, f"{name}, {seconds} s")
    figure.savefig(args.out, dpi=80)


if __name__ == "__main__":
    main()
