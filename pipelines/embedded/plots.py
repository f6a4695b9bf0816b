"""In: the log.jsonl of runs. Out: their loss curves as PNG."""

import argparse
import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from pipelines.embedded.labels import ATTRIBUTES

PANELS = {
    "sentence loss": ("said", "soft"),
    "tower loss": ("heard",),
    "ids right": ("tokens", "agree"),
    "levels right (tower's heads)": ATTRIBUTES,
}
STEPS = 101  # of a moving mean


def smooth(values: list[float]) -> np.ndarray:
    width = min(STEPS, len(values))
    return np.convolve(values, np.ones(width) / width, "valid")


def plot_run(run: Path, out: Path) -> None:
    """Write `out` from run/log.jsonl: moving means."""
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    figure = Figure(figsize=(18, 4))
    axes = figure.subplots(1, len(PANELS))
    for axis, (title, keys) in zip(axes, PANELS.items(), strict=True):
        for key in keys:
            if values := [row[key] for row in rows if key in row]:
                axis.plot(smooth(values), label=key)
                axis.legend(fontsize=7)
        axis.set(title=title, xlabel="step")
        axis.grid(alpha=0.3)
    figure.suptitle(run.name)
    figure.savefig(out, dpi=100, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for run in args.runs:
        plot_run(run, args.out / f"{run.name}.png")


if __name__ == "__main__":
    main()
