"""Fit the errors of the measures.

In: JSON lines of level_rows.py. Out: streamer/core/measures/level_errors.json.

    python -m pipelines.embedded.level_rows --clones DIR --side train --out train.jsonl
    python -m pipelines.embedded.level_rows --clones DIR --side calibrates --out cal.jsonl
    python -m pipelines.embedded.level_weights train.jsonl cal.jsonl [--write FILE]

Errors are fitted to training's people and to those held-out people who calibrate. But the rate's
network was trained on training's people, and is surer there than elsewhere. So the errors of rate
and arousal come from the people who calibrate alone.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from streamer.core.measures import levels
from streamer.core.measures.levels import BOUNDS, MeasureError, features_of, on_axis, values_of

# of about one level, on the axis
WIDTHS = {"rate": 0.35, "pitch": 0.5, "variation": 1.0}
WIDTHS |= {"loudness": 9.0, "pauses": 0.1, "timbre": 7.0}
# The weight of a disturbed sound, by how well the features show it. A recording as it is has 1, so
# that invisible changes cast little doubt on clean sounds.
SEEN = {"none": 1.0, "noise": 0.3, "clipped": 0.3, "babble": 0.3}
SEEN |= {"room": 0.15, "telephone": 0.15, "opus": 0.1}
RIDGE = 2.0
SHIFTED = 8  # sets of bounds beside the true ones: more of a distribution is seen
OF_TEXT = ("rate", "arousal")  # the syllables are the text's, and a network counts them
# Exponents of a model's log-chances beside those of the measures, the same for both models. They
# are chosen: fitted ones of 0.17 to 0.69 say no level more often rightly, and sentences in two
# languages then more often say different levels, as with exponents twice or ten times these.
OPINION = {"rate": 0.004, "pitch": 0.05, "variation": 0.02, "loudness": 0.03, "pauses": 0.03}
OPINION |= {"timbre": 0.05, "arousal": 0.03}
Row = SimpleNamespace  # a line of level_rows.py


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path, nargs="+", help="of level_rows.py, to fit to")
    parser.add_argument("--write", type=Path, default=levels.ERRORS, metavar="FILE")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    lines = (line for file in args.rows for line in file.read_text("utf-8").splitlines())
    write(fit([Row(**json.loads(line)) for line in lines]), args.write)


def fit(rows: Sequence[Row]) -> levels.Learnt:
    apart = [row for row in rows if row.side != "train"]
    errors = {name: error_of(name, apart if name in OF_TEXT else rows) for name in levels.MEASURES}
    return levels.Learnt(errors, arousal_numbers(errors, apart), OPINION)


def error_of(name: str, rows: Sequence[Row]) -> MeasureError:
    """The likeliest error model of one attribute's measure."""
    known = [(row, value) for row in rows if (value := values_of(row).get(name)) is not None]
    known = [(row, value) for row, value in known if name in row.true]
    x = torch.tensor([value for _, value in known])
    f = torch.tensor(np.array([features_of(row) for row, _ in known]))
    true = torch.tensor(on_axis(name, [row.true[name] for row, _ in known]))
    weights = torch.tensor([SEEN[row.change] for row, _ in known])
    centre, sd, width = float(true.mean()), float(true.std()), WIDTHS[name]
    start = torch.zeros(5, len(levels.FEATURES))
    start[2:, 0] = torch.tensor([math.log(0.02 * width), math.log(0.15 * width), -1.0])
    scale = torch.tensor([1 / width**2, 1.0, 0.25, 0.25, 0.25])[:, None]

    def under(p: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
        shift = f @ p[0] + (x - centre) * (f @ p[1])
        narrow, wide, doubt = f @ p[2], f @ p[3], torch.sigmoid(f @ p[4])
        near = torch.sigmoid((bounds - x[:, None]) / torch.exp(narrow)[:, None])
        far = torch.sigmoid((bounds - (x + shift)[:, None]) / torch.exp(wide)[:, None])
        return (1 - doubt)[:, None] * near + doubt[:, None] * far

    sets = bound_sets(on_axis(name, BOUNDS[name]), width)

    def loss(p: torch.Tensor) -> torch.Tensor:
        fits = sum(share * log_loss(under(p, b), true, b, weights) for b, share in sets)
        return fits + RIDGE * (scale * (p - start) ** 2).sum()

    numbers = minimised(loss, start)
    return MeasureError(centre, sd, *numbers)


def bound_sets(bounds: np.ndarray, width: float) -> list[tuple[torch.Tensor, float]]:
    """The true bounds, and some that are shifted, with the weight of each."""
    shifts = np.random.default_rng(0).uniform(-0.5, 0.5, SHIFTED) * width
    sets = [(torch.tensor(bounds), 0.5)]
    return sets + [(torch.tensor(bounds + shift), 0.5 / SHIFTED) for shift in shifts]


def log_loss(
    under: torch.Tensor, true: torch.Tensor, bounds: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Log-loss of the levels that `bounds` make. under [rows, bounds]: the chance to be under each."""
    ends = torch.zeros(len(true), 1), torch.ones(len(true), 1)
    chances = torch.diff(torch.cat([ends[0], under, ends[1]], 1))
    chances = (1 - levels.LEAST_CHANCE) * chances + levels.LEAST_CHANCE / chances.shape[1]
    level = (true[:, None] > bounds).sum(1)
    return -(weights * torch.log(chances[torch.arange(len(true)), level])).sum()


def arousal_numbers(
    errors: dict[str, MeasureError], rows: Sequence[Row]
) -> tuple[float, float, float]:
    """Shift, factor and least variance of arousal's sum."""
    known = [row for row in rows if "arousal" in row.true]
    sums = [levels.arousal_sum(_spreads(row, errors)) for row in known]
    mean, variance = torch.tensor(sums).T
    true = torch.tensor([row.true["arousal"] for row in known])
    weights = torch.tensor([SEEN[row.change] for row in known])
    sets = bound_sets(np.array(BOUNDS["arousal"]), 0.7)

    def loss(p: torch.Tensor) -> torch.Tensor:
        width = torch.exp(p[1]) * torch.sqrt(variance + torch.exp(p[2]))
        z = [(b - (mean + p[0])[:, None]) / width[:, None] for b, _ in sets]
        fits = [
            share * log_loss(torch.sigmoid(at), true, b, weights)
            for at, (b, share) in zip(z, sets, strict=True)
        ]
        return sum(fits) + ((p - start) ** 2).sum()

    start = torch.tensor([0.0, math.log(0.55), math.log(0.005)])
    shift, factor, least = minimised(loss, start)
    return float(shift), float(np.exp(factor)), float(np.exp(least))


def minimised(loss: object, start: torch.Tensor) -> np.ndarray:
    p = start.clone().requires_grad_()
    optimiser = torch.optim.LBFGS([p], max_iter=150, line_search_fn="strong_wolfe")

    def step() -> torch.Tensor:
        optimiser.zero_grad()
        found = loss(p)
        found.backward()
        return found

    optimiser.step(step)
    return p.detach().numpy()


def write(found: levels.Learnt, file: Path) -> None:
    errors = {
        name: {key: np.round(getattr(error, key), 4).tolist() for key in MeasureError.__slots__}
        for name, error in found.errors.items()
    }
    arousal = [round(number, 4) for number in found.arousal]
    held = {"features": levels.FEATURES, "errors": errors}
    held |= {"arousal": arousal, "opinion": found.opinion}
    file.write_text(json.dumps(held, indent=1) + "\n", "utf-8")
    print(f"written: {file}")


def _spreads(row: Row, errors: dict[str, MeasureError]) -> dict:
    features, values = features_of(row), values_of(row)
    return {name: error.spread(values.get(name), features) for name, error in errors.items()}


if __name__ == "__main__":
    main()
