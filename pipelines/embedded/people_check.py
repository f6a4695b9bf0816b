"""How often each attribute's level is right on held-out people, for an edge and a cloud.

A quick look while a training goes on, and the model card's table; bench/people.py measures far
more.
"""

import argparse
import json
import pickle
from pathlib import Path

import numpy as np
import soundfile
import torch

from pipelines.embedded.evaluate import describe_all, open_model, prompted_of
from pipelines.embedded.joint import Prompted
from pipelines.embedded.labels import ATTRIBUTES, NUM_LEVELS, measure
from pipelines.embedded.mel import normalise, raw_log_mel
from pipelines.embedded.speech import speech_frames
from pipelines.embedded.syllables import HAN
from pipelines.embedded.synthesis import f0_track

Row = tuple[dict, dict[str, int | None], np.ndarray]  # manifest row, true levels, mel
GROUPS = {
    "all": lambda row: True,
    "Mandarin": lambda row: row["language"] in HAN,
    "English": lambda row: row["language"] == "en",
    "other languages": lambda row: row["language"] not in (*HAN, "en"),
    "joined, 10 s": lambda row: row["kind"] == "joined-10",
    "joined, 30 s": lambda row: row["kind"] == "joined-30",
    "joined, 60 s": lambda row: row["kind"] == "joined-60",
}


def truths(folder: Path) -> list[Row]:
    """The recordings of the manifest, measured, by length; kept beside it, for Praat takes its
    time."""
    kept = folder / "truth.pkl"
    if kept.exists():
        return pickle.loads(kept.read_bytes())
    lines = (folder / "manifest.jsonl").read_text("utf-8").splitlines()
    rows = []
    for row in map(json.loads, lines):
        samples, _ = soundfile.read(folder / row["wav"], dtype="float32")
        mel = raw_log_mel(samples)
        try:
            f0, speech = f0_track(samples, len(mel)), speech_frames(samples)
            levels = measure(mel, f0, row["syllables"], speech).levels()
        except ValueError:
            continue
        rows.append((row, levels, normalise(mel).astype(np.float32)))
    rows.sort(key=lambda found: len(found[2]))
    kept.write_bytes(pickle.dumps(rows))
    return rows


def figures(rows: list[Row], said: list[dict]) -> dict[str, dict]:
    """Per attribute: share exact and within one level, mean error in levels, share of the most
    frequent level."""
    result = {}
    for name in ATTRIBUTES:
        pairs = [
            (levels[name], told[name])
            for (_, levels, _), told in zip(rows, said, strict=True)
            if levels[name] is not None and told[name] is not None
        ]
        if not pairs:
            continue
        true, heard = np.array(pairs).T
        result[name] = {
            "num": len(pairs),
            "exact": float((true == heard).mean()),
            "within": float((np.abs(true - heard) <= 1).mean()),
            "bias": float((heard - true).mean()),
            "majority": float(np.bincount(true, minlength=NUM_LEVELS[name]).max() / len(true)),
        }
    return result


def right(row: Row, told: dict) -> float:
    """Share of the attributes that are known whose level is said."""
    return float(np.mean([told[n] == level for n, level in row[1].items() if level is not None]))


def check(edge, cloud, prompts: tuple[Prompted, Prompted], folder: Path, every: int = 1) -> dict:
    """People.json: "edge" and "cloud" by group, and cloud - edge over the same recordings."""
    rows = truths(folder)[::every]
    mels = [torch.from_numpy(mel) for _, _, mel in rows]
    report: dict = {"num": len(rows), "speakers": len({row["speaker"] for row, _, _ in rows})}
    each = {}
    for name, model, prompted in (("edge", edge, prompts[0]), ("cloud", cloud, prompts[1])):
        texts = [prompted.tokenizer.decode(ids) for ids in describe_all(model, prompted, mels)]
        said = [prompted.levels(text) for text in texts]
        each[name] = np.array([right(row, told) for row, told in zip(rows, said, strict=True)])
        report[name] = {"no_speech": sum(text == prompted.no_speech for text in texts)}
        for group, inside in GROUPS.items():
            chosen = [i for i, (row, _, _) in enumerate(rows) if inside(row)]
            found = figures([rows[i] for i in chosen], [said[i] for i in chosen])
            report[name][group] = found
            shown = " ".join(f"{a} {f['exact']:.2f}/{f['bias']:+.2f}" for a, f in found.items())
            mean = np.mean([f["exact"] for f in found.values()]) if found else float("nan")
            print(f"{name} {group:16s} {len(chosen):4d} mean {mean:.3f} | {shown}", flush=True)
    gap = each["cloud"] - each["edge"]
    report["gap"], report["gap_se"] = float(gap.mean()), float(gap.std() / len(gap) ** 0.5)
    print(
        f"no speech: {report['edge']['no_speech']} / {report['cloud']['no_speech']}; cloud - edge "
        f"{report['gap']:+.4f} (se {report['gap_se']:.4f})"
    )
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edge", default="streamer/model/embedded/edge", help="or edge=last.pt")
    parser.add_argument("--cloud", default="streamer/model/embedded/cloud", help="or cloud=last.pt")
    parser.add_argument(
        "--data", type=Path, required=True, help="folder of recordings.py --held-out"
    )
    parser.add_argument("--every", type=int, default=1, help="take each n-th recording")
    parser.add_argument("--out", type=Path, help="where people.json goes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    report = check(
        open_model(args.edge),
        open_model(args.cloud),
        (prompted_of(args.edge), prompted_of(args.cloud)),
        args.data,
        args.every,
    )
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "people.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
