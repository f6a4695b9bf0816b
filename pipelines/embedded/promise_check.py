"""The gate's loss at its shipped thresholds, by length, on recordings that calibrated nothing.

`python -m pipelines.embedded.promise_check DIR/*.wav`: of each recording's blocks, the share that
is not sent up though the cloud would have changed it; the promise is that its mean stays under the
risk. "kept": these recordings by themselves certify it, in expectation and with the promise's
confidence (core/calibration/bounds.py), at the threshold as it is. `--profile acoustic`: of
sentences with that profile's attributes.
"""

import argparse
from pathlib import Path

import numpy as np
import soundfile
from tqdm import tqdm

from streamer.assembly.models import Models
from streamer.commands.calibrate import hear_clip
from streamer.config import Config
from streamer.core.attributes import PROFILES
from streamer.core.calibration import at, safe_index
from streamer.core.decoding.gate import SIGNALS

LENGTHS_S = ((0, 5), (5, 20), (20, 45), (45, 61))


def losses(models: Models, files: list[Path]) -> dict[str, list[tuple[float, float, int, int]]]:
    """Per preset a row of (seconds, loss, blocks sent up, blocks) for each recording with
    speech."""
    card = models.first.card
    found: dict[str, list[tuple[float, float, int, int]]] = {name: [] for name in card.promises}
    for file in tqdm(files, desc="hearing"):
        clip = hear_clip(models, str(file))
        if clip is None:
            print(f"{file}: taken for silence")
            continue
        seconds = soundfile.info(file).duration
        for name, promise in card.promises.items():
            limit = SIGNALS[promise.signal] * getattr(card.presets[name].gate, promise.signal)
            way = at(clip.paths[name][promise.signal][0], limit)
            blocks = len(way.decisions)
            found[name].append((seconds, way.num_missed / blocks, way.num_uploaded, blocks))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edge", default="embedded")
    parser.add_argument("--cloud", default="embedded")
    parser.add_argument("--attributes", help="as streamer describe takes them")
    parser.add_argument("--profile", choices=PROFILES, default="full")
    parser.add_argument("clips", nargs="+", type=Path)
    args = parser.parse_args()
    said = {"attributes": args.attributes, "profile": args.profile}
    models = Models(Config(edge=args.edge, cloud=args.cloud, **said), calibrates=True)
    head = ("preset", "risk", "length", "recordings", "loss (se)", "skipped", "kept")
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    for name, rows in losses(models, args.clips).items():
        promise = models.first.card.promises[name]
        for low, high in (*LENGTHS_S, (0, 61)):
            inside = np.array([row[1:] for row in rows if low <= row[0] < high])
            if len(inside) < 2:
                continue
            error = inside[:, 0].std(ddof=1) / len(inside) ** 0.5
            skipped = 1 - inside[:, 1].sum() / inside[:, 2].sum()
            lost = inside[np.random.default_rng(0).permutation(len(inside)), :1]
            kept = safe_index(lost, promise.risk, promise.confidence) is not None
            print(
                f"| {name} | {promise.risk} | {low}-{high} s | {len(inside)} | "
                f"{inside[:, 0].mean():.3f} ({error:.3f}) | {skipped:.2f} | "
                f"{'yes' if kept else 'no'} |"
            )


if __name__ == "__main__":
    main()
