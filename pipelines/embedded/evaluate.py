"""In: an edge and a cloud checkpoint, held-out shards. Out: the numbers that decide whether they
ship, and plots."""

import argparse
import json
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from pipelines.embedded.data import Composer, Corpus, Turn
from pipelines.embedded.export import load_run
from pipelines.embedded.greedy import describe_batch, follow
from pipelines.embedded.joint import Prompted
from pipelines.embedded.labels import ATTRIBUTES, NUM_LEVELS
from pipelines.embedded.sentences import parse

LENGTHS_S = (3, 10, 30, 60)


def held_out_turns(folder: Path, num: int, seconds: float, seed: int = 77) -> list[Turn]:
    composer, turns, attempt = Composer(Corpus(folder), seed), [], 0
    while len(turns) < num:
        attempt += 1
        try:
            turns.append(
                composer.speech(int(100 * seconds), random.Random(f"{seed}/{seconds}/{attempt}"))
            )
        except ValueError:
            continue
    return turns


def open_model(spec: str):
    """`edge=path/last.pt` (a run) or a folder in the published layout."""
    if "=" in spec:
        return load_run(spec.split("=")[0], Path(spec.split("=")[1]))
    from transformers import Qwen2_5OmniThinkerForConditionalGeneration

    return Qwen2_5OmniThinkerForConditionalGeneration.from_pretrained(
        spec, dtype=torch.float32
    ).eval()


def describe_all(
    model, prompted: Prompted, mels: list[torch.Tensor], size: int = 12
) -> list[list[int]]:
    parts = [describe_batch(model, prompted, mels[i : i + size]) for i in range(0, len(mels), size)]
    return [ids for part in parts for ids in part]


def score(text: str, turn: Turn) -> dict[str, float]:
    """Exact (1/0) per attribute, "within" one level, "well" formed: all seven said, ends in a
    full stop."""
    said = parse(text)
    result = {name: float(said[name] == turn.levels[name]) for name in ATTRIBUTES}
    near = [said[n] is not None and abs(said[n] - turn.levels[n]) <= 1 for n in ATTRIBUTES]
    well = (
        text.endswith("。")
        and text.count("。") == 1
        and all(said[n] is not None for n in ATTRIBUTES)
    )
    return result | {"within": float(np.mean(near)), "well": float(well)}


def blocks(matches: list[bool], k: int = 4) -> tuple[int, int]:
    """(accepted, uploaded) of speculation with blocks of `k`, from where edge and cloud agree
    along the answer."""
    accepted = uploaded = at = 0
    while at < len(matches):
        block = matches[at : at + k]
        run = next((i for i, same in enumerate(block) if not same), len(block))
        accepted, uploaded, at = accepted + run, uploaded + len(block), at + run + 1
    return accepted, uploaded


def auc(accepted: np.ndarray, rejected: np.ndarray) -> float:
    """Chance that a rejected id has the higher entropy."""
    if not len(accepted) or not len(rejected):
        return float("nan")
    order = np.searchsorted(np.sort(accepted), rejected, "left") + np.searchsorted(
        np.sort(accepted), rejected, "right"
    )
    return float(order.mean() / 2 / len(accepted))


def evaluate(edge, cloud, folder: Path, num: int) -> dict:
    prompted, report = Prompted(), {}
    entropies: dict[bool, list[float]] = defaultdict(list)
    wrongly: dict[bool, list[float]] = defaultdict(list)  # the same, with the wrong clip's audio
    for seconds in LENGTHS_S:
        turns, rows = held_out_turns(folder, num, seconds), defaultdict(list)
        counts, counts_wrong, total = np.zeros(2), np.zeros(2), defaultdict(list)
        mels = [torch.from_numpy(turn.mel) for turn in turns]
        answers = {
            name: describe_all(model, prompted, mels)
            for name, model in (("edge", edge), ("cloud", cloud))
        }
        for i, (turn, mel) in enumerate(zip(turns, tqdm(mels, desc=f"{seconds} s"), strict=True)):
            said = {name: of[i] for name, of in answers.items()}
            for name, ids in said.items():
                rows[name].append(score(prompted.tokenizer.decode(ids), turn))
            wrong = score(prompted.tokenizer.decode(said["cloud"]), turns[i - 1])
            total["wrong"].append(np.mean([wrong[n] for n in ATTRIBUTES]))
            choice, entropy = follow(edge, prompted, mel, said["cloud"])
            same = [a == b for a, b in zip(choice.tolist(), said["cloud"], strict=True)]
            counts += blocks(same)
            # drafts with the wrong audio
            control, unsure = follow(edge, prompted, mels[i - 1], said["cloud"])
            of_other = [a == b for a, b in zip(control.tolist(), said["cloud"], strict=True)]
            counts_wrong += blocks(of_other)
            for found, same_ids, at in ((entropies, same, entropy), (wrongly, of_other, unsure)):
                for s, e in zip(same_ids, at.tolist(), strict=True):
                    found[s].append(e)
        mean = {
            name: {key: float(np.mean([r[key] for r in of])) for key in of[0]}
            for name, of in rows.items()
        }
        each = {
            name: np.array([[r[n] for n in ATTRIBUTES] for r in of]).mean(1)
            for name, of in rows.items()
        }
        gap = each["cloud"] - each["edge"]
        majority = [
            max(np.bincount([t.levels[n] for t in turns], minlength=NUM_LEVELS[n])) / num
            for n in ATTRIBUTES
        ]
        report[seconds] = {
            "edge": mean["edge"],
            "cloud": mean["cloud"],
            "edge_mean": float(each["edge"].mean()),
            "cloud_mean": float(each["cloud"].mean()),
            "gap": float(gap.mean()),
            "gap_se": float(gap.std() / num**0.5),
            "majority": float(np.mean(majority)),
            "majorities": dict(zip(ATTRIBUTES, majority, strict=True)),
            "wrong_clip": float(np.mean(total["wrong"])),
            "acceptance": float(counts[0] / counts[1]),
            "acceptance_wrong": float(counts_wrong[0] / counts_wrong[1]),
        }
        print(
            json.dumps(
                {seconds: {k: v for k, v in report[seconds].items() if not isinstance(v, dict)}}
            )
        )
        print("   edge ", {k: round(v, 3) for k, v in mean["edge"].items()})
        print("   cloud", {k: round(v, 3) for k, v in mean["cloud"].items()}, flush=True)
    accepted, rejected = (np.array(entropies[x]) for x in (True, False))
    report["num"], report["auc"] = num, auc(accepted, rejected)
    report["auc_wrong"] = auc(*(np.array(wrongly[x]) for x in (True, False)))
    report["entropy_quantiles"] = {
        "accepted": np.quantile(accepted, [0.5, 0.8, 0.9, 0.95]).tolist() if len(accepted) else [],
        "rejected": np.quantile(rejected, [0.05, 0.1, 0.25, 0.5, 0.9]).tolist()
        if len(rejected)
        else [],
    }
    gaps = np.array([report[s]["gap"] for s in LENGTHS_S])
    ses = np.array([report[s]["gap_se"] for s in LENGTHS_S])
    report["gap"], report["gap_se"] = float(gaps.mean()), float((ses**2).sum() ** 0.5 / len(ses))
    print("auc", report["auc"], "entropies", report["entropy_quantiles"])
    print(
        f"cloud minus edge, {num * len(LENGTHS_S)} clips: {report['gap']:+.4f} (se {report['gap_se']:.4f})"
    )
    return report


def plot(report: dict, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
    for name in ("edge_mean", "cloud_mean", "majority", "wrong_clip", "acceptance"):
        label = name.removesuffix("_mean").replace("_", " ")
        left.plot(LENGTHS_S, [report[s][name] for s in LENGTHS_S], "o-", label=label)
    for name in ATTRIBUTES:
        right.plot(LENGTHS_S, [report[s]["cloud"][name] for s in LENGTHS_S], "o-", label=name)
    for axis, title in ((left, "mean over attributes"), (right, "cloud, by attribute")):
        axis.set(xscale="log", xlabel="turn length, s", ylim=(0, 1), title=title)
        axis.minorticks_off()
        axis.set_xticks(LENGTHS_S, [str(s) for s in LENGTHS_S])
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    figure.savefig(path, dpi=110, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edge", default="streamer/model/embedded/edge")
    parser.add_argument("--cloud", default="streamer/model/embedded/cloud")
    parser.add_argument("--data", type=Path, required=True, help="shards of held-out voices")
    parser.add_argument("--num", type=int, default=165, help="clips of each length")
    parser.add_argument("--out", type=Path, default=Path("."))
    args = parser.parse_args()
    if not any(args.data.glob("*.json")):
        raise SystemExit(f"no shards in {args.data}; run make train first")
    torch.set_num_threads(1)
    report = evaluate(open_model(args.edge), open_model(args.cloud), args.data, args.num)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "evaluation.json").write_text(json.dumps(report, indent=1) + "\n")
    plot(report, args.out / "accuracy_against_length.png")


if __name__ == "__main__":
    main()
