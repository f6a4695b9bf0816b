"""The gate of the exported pair: its thresholds, and its promise.

    python -m pipelines.embedded.gate fit --edge EDGE --cloud CLOUD FILE...
    python -m pipelines.embedded.gate check FILE...

`fit` runs `streamer calibrate` and writes the thresholds into both cards.
`check` prints the loss at these thresholds, by length, on recordings that calibrated nothing: the
share of a recording's blocks that are not sent up though the cloud would have changed them.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import soundfile
from tqdm import tqdm

from streamer.assembly import Models
from streamer.commands.calibrate import hear_clip
from streamer.config import Config
from streamer.core.calibration import at
from streamer.model.checkpoint.card import FILE, write_gate

LENGTHS_S = ((0, 5), (5, 20), (20, 45), (45, 61), (0, 61))


def fit(args: argparse.Namespace) -> None:
    """Write the thresholds into both cards."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "edge"
        command = [sys.executable, "-m", "streamer", "calibrate", *args.files, "--out", copy]
        for name in ("risk", "confidence", "language", "edge", "cloud"):
            command += [f"--{name}", getattr(args, name)]
        subprocess.run([str(part) for part in command], check=True)
        card = json.loads((copy / FILE).read_text("utf-8"))
    found = card.get("languages", {}).get(args.language, card)["gate"]
    for model in (Path(args.edge), Path(args.cloud)):
        write_gate(model, found, args.language)


def losses(models: Models, files: list[Path]) -> dict[str, list[tuple[float, float, int, int]]]:
    """Per preset a row of (seconds, loss, blocks sent up, blocks) for each recording with
    speech."""
    card = models.first.card.speaking(models.language)
    found: dict[str, list[tuple[float, float, int, int]]] = {name: [] for name in card.promises}
    for file in tqdm(files, desc="hearing"):
        clip = hear_clip(models, str(file))
        if clip is None:
            tqdm.write(f"{file}: taken for silence")
            continue
        seconds = soundfile.info(file).duration
        for name in card.promises:
            way = at(clip[name][0], card.presets[name].threshold)
            blocks = len(way.blocks)
            found[name].append((seconds, way.num_missed / blocks, len(way.uploaded), blocks))
    return found


def check(args: argparse.Namespace) -> list[dict]:
    """Rows of preset, risk, length, recordings, loss, its standard error, share not sent up."""
    from bench.common import table_of

    config = Config(edge=args.edge, cloud=args.cloud, language=args.language)
    models = Models(config)
    card, found = models.first.card.speaking(args.language), []
    for name, rows in losses(models, args.files).items():
        for low, high in LENGTHS_S:
            inside = np.array([row[1:] for row in rows if low <= row[0] < high])
            if len(inside) > 1:
                row = {"preset": name, "risk": card.promises[name].risk}
                row |= {"length": f"{low}-{high} s", "recordings": len(inside)}
                row["loss"] = float(inside[:, 0].mean())
                row["se"] = float(inside[:, 0].std(ddof=1) / len(inside) ** 0.5)
                row["skipped"] = float(1 - inside[:, 1].sum() / inside[:, 2].sum())
                found.append(row)
    print(table_of(found) if found else "too few recordings")
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("do", choices=("fit", "check"))
    parser.add_argument("files", nargs="+", type=Path, help="recordings")
    parser.add_argument("--out", type=Path, help="the rows of `check`")
    parser.add_argument("--edge", default="embedded")
    parser.add_argument("--cloud", default="embedded")
    parser.add_argument("--language", default="zh", help="of the sentences")
    parser.add_argument("--risk", type=float, default=0.05, help="of preset fluent")
    parser.add_argument("--confidence", type=float, default=0.9)
    args = parser.parse_args()
    {"fit": fit, "check": check}[args.do](args)


if __name__ == "__main__":
    main()
