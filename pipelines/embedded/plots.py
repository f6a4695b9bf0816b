"""In: the log.jsonl of runs. Out: their loss curves as PNG."""

import argparse
import json
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PANELS = {
    "sentence loss": ("said", "soft"),
    "tower loss": ("heard",),
    "ids right": ("tokens", "agree"),
    "levels right (tower's heads)": (
        "rate",
        "pitch",
        "variation",
        "loudness",
        "pauses",
        "timbre",
        "arousal",
    ),
}


def smooth(values: list[float], width: int = 101) -> np.ndarray:
    width = max(1, min(width, len(values)))
    return np.convolve(values, np.ones(width) / width, "valid")


def plot_run(run: Path, out: Path) -> None:
    """Write `out` from run/log.jsonl: moving means over 101 steps."""
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    figure, axes = plt.subplots(1, len(PANELS), figsize=(18, 4))
    for axis, (title, keys) in zip(axes, PANELS.items(), strict=True):
        for key in keys:
            if values := [row[key] for row in rows if key in row]:
                axis.plot(smooth(values), label=key)
                axis.legend(fontsize=7)
        axis.set(title=title, xlabel="step")
        axis.grid(alpha=0.3)
    figure.suptitle(run.name)
    figure.savefig(out, dpi=100, bbox_inches="tight")
    plt.close(figure)


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
