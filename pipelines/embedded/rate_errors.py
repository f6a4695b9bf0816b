"""Fit the error bar of the syllable rate: by length, noise and rate.

    python -m pipelines.embedded.rate_errors calibrates.jsonl [--write [density.npz]]

In: rows of level_rows.py, of people that the network did not train on. Out: the four numbers of
`streamer.core.measures.density.error_of`, by the least mean absolute deviation of the errors' size,
and how well they say it.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from pipelines.embedded.rate_data import PLAUSIBLE
from streamer.core.measures import density

START = (0.2, 0.3, 3.0, 0.5)


def usable(row: dict) -> bool:
    """Whether the text is known and says what was said, and a rate was measured."""
    true = row["true"].get("rate")
    is_plausible = true is not None and PLAUSIBLE[0] < true < PLAUSIBLE[1]
    return is_plausible and bool(row["rate_syllables_per_s"]) and bool(row["speech_s"])


def fit(rows: list[dict]) -> np.ndarray:
    """The numbers [4] under which Laplace errors of that mean size are the likeliest."""
    speech_s, said = (np.array([r[n] for r in rows]) for n in ("speech_s", "rate_syllables_per_s"))
    known = [density.UNKNOWN_SNR_DB if r["snr_db"] is None else r["snr_db"] for r in rows]
    snr_db, true = np.array(known), np.array([r["true"]["rate"] for r in rows])
    off = np.abs(said - true)

    def loss(numbers: np.ndarray) -> float:
        scale = density.error_of(np.exp(numbers), speech_s, snr_db, said)
        return float(np.mean(np.log(scale) + off / scale))

    best = minimize(loss, np.log(START), method="L-BFGS-B", bounds=[(-6, 3)] * 4)
    numbers = np.exp(best.x)
    scale = density.error_of(numbers, speech_s, snr_db, said)
    for change in sorted({row["change"] for row in rows}):
        here = np.array([row["change"] == change for row in rows])
        told = f"error {off[here].mean():.3f}, told {scale[here].mean():.3f}"
        print(f"{change}: {here.sum()} sounds, {told}")
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path, nargs="+", help="of level_rows.py")
    parser.add_argument("--write", type=Path, nargs="?", const=density.WEIGHTS, metavar="FILE")
    args = parser.parse_args()
    lines = [line for file in args.rows for line in file.read_text("utf-8").splitlines()]
    rows = [row for row in map(json.loads, lines) if usable(row)]
    numbers = fit(rows)
    print("numbers", numbers.round(4).tolist(), "of", len(rows))
    if args.write:
        with np.load(args.write) as held:
            arrays = {name: held[name] for name in held.files}
        np.savez(args.write, **arrays | {"error": numbers.astype(np.float16)})


if __name__ == "__main__":
    main()
