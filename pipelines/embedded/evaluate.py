"""Accuracy of an edge and a cloud on shards of held-out voices, with a plot."""

import argparse
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from pipelines.embedded.data import Composer, Corpus, Turn
from pipelines.embedded.export import load_run
from pipelines.embedded.greedy import describe_batch, follow
from pipelines.embedded.joint import Prompted
from pipelines.embedded.labels import ATTRIBUTES, NUM_LEVELS

LENGTHS_S = (3, 10, 30, 60)
SEED = 77
BATCH = 12  # turns


def held_out_turns(folder: Path, num: int, seconds: float) -> list[Turn]:
    composer, turns, attempt = Composer(Corpus(folder), SEED), [], 0
    while len(turns) < num:
        attempt += 1
        rng = random.Random(f"{SEED}/{seconds}/{attempt}")
        with suppress(ValueError):  # the drawn phrases hold too little speech
            turns.append(composer.speech(int(100 * seconds), rng))
    return turns


def open_model(spec: str):
    """`edge=path/last.pt` (a run) or a folder in the published layout."""
    if "=" in spec:
        return load_run(spec.split("=")[0], Path(spec.split("=")[1]))
    from transformers import Qwen2_5OmniThinkerForConditionalGeneration

    return Qwen2_5OmniThinkerForConditionalGeneration.from_pretrained(
        spec, dtype=torch.float32
    ).eval()


def prompted_of(spec: str) -> Prompted:
    """With the tokenizer, prompt and phrases of that model."""
    return Prompted(None if "=" in spec else Path(spec))


def describe_all(model, prompted: Prompted, mels: list[torch.Tensor]) -> list[list[int]]:
    batches = [mels[i : i + BATCH] for i in range(0, len(mels), BATCH)]
    return [ids for batch in batches for ids in describe_batch(model, prompted, batch)]


def score(prompted: Prompted, text: str, turn: Turn) -> dict[str, float]:
    """Exact (1/0) per attribute, "within" one level, "well" formed: all seven said, ends in a
    full stop."""
    said = prompted.levels(text)
    result = {name: float(said[name] == turn.levels[name]) for name in ATTRIBUTES}
    near = [said[n] is not None and abs(said[n] - turn.levels[n]) <= 1 for n in ATTRIBUTES]
    is_one = text.endswith("。") and text.count("。") == 1
    well = is_one and all(said[n] is not None for n in ATTRIBUTES)
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
    known = np.sort(accepted)
    order = sum(np.searchsorted(known, rejected, side) for side in ("left", "right"))
    return float(order.mean() / 2 / len(accepted))


class Agreement:
    """Where the edge, led along the cloud's answers, chooses the same id."""

    def __init__(self) -> None:
        self.entropies: dict[bool, list[float]] = {True: [], False: []}  # same id or not: nats
        self.blocks = np.zeros(2)  # accepted, uploaded

    def add(self, choice: torch.Tensor, entropy: torch.Tensor, answer: list[int]) -> None:
        same = [a == b for a, b in zip(choice.tolist(), answer, strict=True)]
        self.blocks += blocks(same)
        for s, e in zip(same, entropy.tolist(), strict=True):
            self.entropies[s].append(e)

    @property
    def acceptance(self) -> float:
        return float(self.blocks[0] / self.blocks[1])

    def auc(self) -> float:
        return auc(np.array(self.entropies[True]), np.array(self.entropies[False]))

    def quantiles(self) -> dict[str, list[float]]:
        asked = {True: (0.5, 0.8, 0.9, 0.95), False: (0.05, 0.1, 0.25, 0.5, 0.9)}
        return {
            name: np.quantile(self.entropies[same], asked[same]).tolist()
            if self.entropies[same]
            else []
            for name, same in (("accepted", True), ("rejected", False))
        }


def joined(parts: Iterable[Agreement]) -> Agreement:
    """All of them as one."""
    result = Agreement()
    for part in parts:
        result.blocks += part.blocks
        for same, found in part.entropies.items():
            result.entropies[same] += found
    return result


def evaluate(edge, cloud, prompted: Prompted, folder: Path, num: int) -> dict:
    report: dict = {}
    parts = []  # of each length: with its own audio, and with the wrong clip's
    for seconds in LENGTHS_S:
        turns = held_out_turns(folder, num, seconds)
        mels = [torch.from_numpy(turn.mel) for turn in turns]
        answers = {
            name: describe_all(model, prompted, mels)
            for name, model in (("edge", edge), ("cloud", cloud))
        }
        own, other, wrong = Agreement(), Agreement(), []
        for i, mel in enumerate(tqdm(mels, desc=f"{seconds} s")):
            answer = answers["cloud"][i]
            said = score(prompted, prompted.tokenizer.decode(answer), turns[i - 1])
            wrong.append(np.mean([said[n] for n in ATTRIBUTES]))
            own.add(*follow(edge, prompted, mel, answer), answer)
            other.add(*follow(edge, prompted, mels[i - 1], answer), answer)
        texts = {
            name: [prompted.tokenizer.decode(ids) for ids in of] for name, of in answers.items()
        }
        report[seconds] = accuracies(prompted, texts, turns) | {
            "wrong_clip": float(np.mean(wrong)),
            "acceptance": own.acceptance,
            "acceptance_wrong": other.acceptance,
        }
        parts.append((own, other))
        tell(seconds, report[seconds])
    own, other = (joined(part[i] for part in parts) for i in (0, 1))
    report |= {"num": num, "auc": own.auc(), "auc_wrong": other.auc()}
    report["entropy_quantiles"] = own.quantiles()
    print("auc", report["auc"], "entropies", report["entropy_quantiles"])
    return report | gap_of([report[s] for s in LENGTHS_S], num)


def accuracies(
    prompted: Prompted, texts: Mapping[str, Sequence[str]], turns: Sequence[Turn]
) -> dict[str, Any]:
    """Of both models' sentences about these turns, and of always the most frequent level."""
    rows = {
        name: [score(prompted, text, turn) for text, turn in zip(of, turns, strict=True)]
        for name, of in texts.items()
    }
    means = {
        name: {key: float(np.mean([r[key] for r in of])) for key in of[0]}
        for name, of in rows.items()
    }
    each = {
        name: np.array([[r[n] for n in ATTRIBUTES] for r in of]).mean(1)
        for name, of in rows.items()
    }
    gap = each["cloud"] - each["edge"]
    majorities = {
        n: max(np.bincount([t.levels[n] for t in turns], minlength=NUM_LEVELS[n])) / len(turns)
        for n in ATTRIBUTES
    }
    return {
        "edge": means["edge"],
        "cloud": means["cloud"],
        "edge_mean": float(each["edge"].mean()),
        "cloud_mean": float(each["cloud"].mean()),
        "gap": float(gap.mean()),
        "gap_se": float(gap.std() / len(turns) ** 0.5),
        "majority": float(np.mean(list(majorities.values()))),
        "majorities": majorities,
    }


def tell(seconds: float, row: Mapping[str, Any]) -> None:
    print(json.dumps({seconds: {k: v for k, v in row.items() if not isinstance(v, dict)}}))
    for name in ("edge", "cloud"):
        print(f"   {name:5}", {k: round(v, 3) for k, v in row[name].items()}, flush=True)


def gap_of(rows: Sequence[Mapping[str, Any]], num: int) -> dict[str, float]:
    """Cloud minus edge over all lengths, with its standard error."""
    errors = np.array([row["gap_se"] for row in rows])
    gap = float(np.mean([row["gap"] for row in rows]))
    error = float((errors**2).sum() ** 0.5 / len(rows))
    print(f"cloud minus edge, {num * len(rows)} clips: {gap:+.4f} (se {error:.4f})")
    return {"gap": gap, "gap_se": error}


def plot(report: dict, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4))
    left, right = figure.subplots(1, 2)
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
    edge, cloud = open_model(args.edge), open_model(args.cloud)
    report = evaluate(edge, cloud, prompted_of(args.edge), args.data, args.num)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "evaluation.json").write_text(json.dumps(report, indent=1) + "\n")
    plot(report, args.out / "accuracy_against_length.png")


if __name__ == "__main__":
    main()
