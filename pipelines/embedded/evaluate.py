"""How often each level is right, for an edge and a cloud: voices and people that never trained.

    python -m pipelines.embedded.evaluate --data .cache/embedded/held --out report
    python -m pipelines.embedded.evaluate --people .cache/embedded/people-held --every 3

The models speak alone: no rules and no measures. `python -m bench.people` evaluates the sentences of the product.
"""

import argparse
import json
import pickle
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile
import torch

from pipelines.embedded.data import Composer, Corpus
from pipelines.embedded.labels import ATTRIBUTES, NUM_LEVELS, f0_track, measure, speech_frames
from pipelines.embedded.mel import normalise, raw_log_mel
from pipelines.embedded.prompted import Prompted, describe_all
from pipelines.embedded.syllables import HAN
from streamer.model.engines.load import load_stock

EMBEDDED = Path("streamer/model/embedded")
LENGTHS_S = (3, 10, 30, 60)
SEED = 77
GROUPS = {
    "all": lambda row: True,
    "Mandarin": lambda row: row["language"] in HAN,
    "English": lambda row: row["language"] == "en",
    "other languages": lambda row: row["language"] not in (*HAN, "en"),
    "joined, 10 s": lambda row: row["kind"] == "joined-10",
    "joined, 30 s": lambda row: row["kind"] == "joined-30",
    "joined, 60 s": lambda row: row["kind"] == "joined-60",
}


class Row(NamedTuple):
    """facts: of the manifest; levels: the true ones, None if unknown; mel [n_frames, 128]."""

    facts: dict
    levels: dict[str, int | None]
    mel: np.ndarray


def voices(folder: Path, num: int) -> list[Row]:
    """`num` turns of each of LENGTHS_S, drawn from shards of held-out voices."""
    composer, rows = Composer(Corpus(folder), SEED), []
    for seconds in LENGTHS_S:
        found: list[Row] = []
        attempt = 0
        while len(found) < num:
            attempt += 1
            rng = random.Random(f"{SEED}/{seconds}/{attempt}")
            with suppress(ValueError):  # the drawn phrases hold too little speech
                turn = composer.speech(int(100 * seconds), rng)
                found.append(Row({"seconds": seconds}, turn.levels, turn.mel))
        rows += found
    return rows


def people(folder: Path) -> list[Row]:
    """The recordings of the manifest, measured, by length. Praat takes its time, so the result is
    kept in truth.pkl."""
    kept = folder / "truth.pkl"
    if kept.exists():
        return [Row(*row) for row in pickle.loads(kept.read_bytes())]
    rows = []
    for line in (folder / "manifest.jsonl").read_text("utf-8").splitlines():
        facts = json.loads(line)
        samples, _ = soundfile.read(folder / facts["wav"], dtype="float32")
        mel = raw_log_mel(samples)
        with suppress(ValueError):  # no voice in it
            f0, speech = f0_track(samples, len(mel)), speech_frames(samples)
            levels = measure(mel, f0, facts["syllables"], speech).levels()
            rows.append(Row(facts, levels, normalise(mel).astype(np.float32)))
    rows.sort(key=lambda row: len(row.mel))
    kept.write_bytes(pickle.dumps([tuple(row) for row in rows]))
    return rows


def figures(rows: Sequence[Row], said: Sequence[dict]) -> dict[str, dict]:
    """Per attribute: share exact and within one level, mean error in levels, and the share of the
    most frequent level."""
    result = {}
    for name in ATTRIBUTES:
        pairs = [
            (row.levels[name], told[name])
            for row, told in zip(rows, said, strict=True)
            if row.levels[name] is not None and told[name] is not None
        ]
        if pairs:
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
    """Share of the known attributes whose level is said."""
    return float(
        np.mean([told[n] == level for n, level in row.levels.items() if level is not None])
    )


def evaluated(models: dict, prompts: dict, rows: Sequence[Row], groups: dict) -> dict:
    """{"edge": {group: figures}, "cloud": ..., "gap", "gap_se"}; gap: cloud - edge, paired."""
    mels = [torch.from_numpy(row.mel) for row in rows]
    report: dict = {"num": len(rows)}
    each = {}
    for name, model in models.items():
        prompted = prompts[name]
        texts = [prompted.tokenizer.decode(ids) for ids in describe_all(model, prompted, mels)]
        said = [prompted.levels(text) for text in texts]
        each[name] = np.array([right(row, told) for row, told in zip(rows, said, strict=True)])
        report[name] = {"no_speech": sum(text == prompted.no_speech for text in texts)}
        for group, inside in groups.items():
            chosen = [i for i, row in enumerate(rows) if inside(row.facts)]
            found = figures([rows[i] for i in chosen], [said[i] for i in chosen])
            report[name][group] = found
            tell(name, group, len(chosen), found)
    gap = each["cloud"] - each["edge"]
    report["gap"], report["gap_se"] = float(gap.mean()), float(gap.std() / len(gap) ** 0.5)
    print(f"cloud - edge {report['gap']:+.4f} (se {report['gap_se']:.4f})", flush=True)
    return report


def tell(name: str, group: str, num: int, found: dict) -> None:
    mean = np.mean([f["exact"] for f in found.values()]) if found else float("nan")
    shown = " ".join(f"{a} {f['exact']:.2f}/{f['bias']:+.2f}" for a, f in found.items())
    print(f"{name} {group:16s} {num:4d} mean {mean:.3f} | {shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--edge", type=Path, default=EMBEDDED / "edge")
    parser.add_argument("--cloud", type=Path, default=EMBEDDED / "cloud")
    parser.add_argument("--data", type=Path, help="shards of held-out voices")
    parser.add_argument("--num", type=int, default=165, help="turns of each length")
    parser.add_argument("--people", type=Path, help="folder of `recordings --held-out`")
    parser.add_argument("--every", type=int, default=1, help="take each n-th recording of people")
    parser.add_argument("--out", type=Path, help="where voices.json and people.json go")
    args = parser.parse_args()
    if args.data and not any(args.data.glob("*.json")):
        raise SystemExit(f"no shards in {args.data}; run make train first")
    torch.set_num_threads(1)
    folders = {"edge": args.edge, "cloud": args.cloud}
    models = {name: load_stock(folder) for name, folder in folders.items()}
    prompts = {name: Prompted(folder) for name, folder in folders.items()}
    lengths = {f"{s} s": (lambda row, s=s: row["seconds"] == s) for s in LENGTHS_S}
    reports = {}
    if args.data:
        reports["voices"] = evaluated(models, prompts, voices(args.data, args.num), lengths)
    if args.people:
        rows = people(args.people)[:: args.every]
        reports["people"] = evaluated(models, prompts, rows, GROUPS)
        reports["people"]["speakers"] = len({row.facts["speaker"] for row in rows})
    for name, report in reports.items() if args.out else ():
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
