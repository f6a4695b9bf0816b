"""In: evaluation.json and contrast.json of the last training. Out: MODEL_CARD.md beside the weights, its tables."""

import argparse
import json
from pathlib import Path

from pipelines.embedded.evaluate import LENGTHS_S
from pipelines.embedded.labels import ATTRIBUTES

HEAD = """# The embedded edge and cloud

Two thinkers of the Qwen2.5-Omni architecture (audio tower and language model, fp16 safetensors in the published
layout), trained by this project from synthetic voices alone: espeak-ng in thirteen languages and two voices of
flite, resynthesised to other tempos, pitches and melodies. They hear a turn of 1.5 to 60 s and say in one Chinese
sentence how it is spoken, by seven attributes; they also say when nobody speaks. Written by `python -m
pipelines.embedded.card`; how they were trained and what did not help stands in pipelines/embedded/REPORT.md.

Intended for: running, testing and measuring streamer without a download. Not for judging people: what is named is
the sound, by thresholds on physical measures (pipelines/embedded/labels.py), not a feeling. On recorded human
speech they have not been measured here.

| | edge | cloud |
|---|---|---|
| audio tower | 128 wide, 2 layers | 128 wide, 4 layers |
| language model | 128 wide, 2 layers | 256 wide, 4 layers |
"""

GATE = """
## The gate

Its thresholds keep a stated risk: the expected share of a recording's blocks that are not sent up though the cloud
would have changed them (README, "A gate with a promise"). Recordings that chose and certified nothing; "of cloud's":
attribute accuracy over the cloud's. Reproduce: `python -m bench.gate`.

"""


def by_length(report: dict) -> str:
    """One row a figure, one column a length."""
    rows = [("cloud, exact", "cloud_mean"), ("edge, exact", "edge_mean"), ("cloud - edge", "gap"),
            ("its standard error", "gap_se"), ("most frequent level", "majority"),
            ("sentences of another clip", "wrong_clip"),
            ("accepted / uploaded, k 4", "acceptance"), ("... with the wrong audio", "acceptance_wrong")]  # fmt: skip
    lines = ["| | " + " | ".join(f"{s} s" for s in LENGTHS_S) + " |", "|---" * (len(LENGTHS_S) + 1) + "|"]
    for title, key in rows:
        lines.append(f"| {title} | " + " | ".join(f"{report[str(s)][key]:.3f}" for s in LENGTHS_S) + " |")
    for model in ("cloud", "edge"):
        for key, title in (("within", "within one level"), ("well", "well formed")):
            found = " | ".join(f"{report[str(s)][model][key]:.3f}" for s in LENGTHS_S)
            lines.append(f"| {model}, {title} | {found} |")
    return "\n".join(lines)


def by_attribute(report: dict) -> str:
    """Mean over the lengths."""
    lines = ["| | " + " | ".join(ATTRIBUTES) + " |", "|---" * (len(ATTRIBUTES) + 1) + "|"]
    for title, pick in (("cloud", "cloud"), ("edge", "edge"), ("most frequent level", "majorities")):
        found = [sum(report[str(s)][pick][name] for s in LENGTHS_S) / len(LENGTHS_S) for name in ATTRIBUTES]
        lines.append(f"| {title} | " + " | ".join(f"{value:.2f}" for value in found) + " |")
    return "\n".join(lines)


def contrasts(found: dict) -> str:
    """Share of pairs told apart, per attribute, moderate and large changes together."""
    head = "| | pairs | told apart | reversed | " + " | ".join(ATTRIBUTES[:-1]) + " |"
    lines = [head, "|---" * (len(ATTRIBUTES) + 3) + "|"]
    for name, row in found.items():
        each = " | ".join(f"{row['attributes'][a]:.2f}" for a in ATTRIBUTES[:-1])
        lines.append(f"| {name} | {row['num']} | {row['strict']:.3f} | {row['reversed']} | {each} |")
    return "\n".join(lines)


def gate(rows: list[dict]) -> str:
    """What bench.gate found, its table by preset and length."""
    columns = ("clips", "risk", "loss", "se", "skipped", "of cloud's", "accepted / uploaded")
    lines = ["| preset | length | " + " | ".join(columns) + " |", "|---" * (len(columns) + 2) + "|"]
    for row in rows:
        if "length" in row:
            cells = (row[c] if isinstance(row[c], int) else f"{row[c]:.3f}" for c in columns)
            lines.append(f"| {row['preset']} | {row['length']} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, default=Path(".cache/embedded/report"))
    parser.add_argument("--gate", type=Path, help="gate.jsonl of python -m bench.gate on this pair")
    parser.add_argument("--out", type=Path, default=Path("streamer/model/embedded/MODEL_CARD.md"))
    args = parser.parse_args()
    report = json.loads((args.report / "evaluation.json").read_text())
    pairs = json.loads((args.report / "contrast.json").read_text())
    num = report["num"] * len(LENGTHS_S)
    text = f"""{HEAD}
## Accuracy on voices never trained on

{num} turns of held-out voices, variants and engines, {report["num"]} of each length; share of the attributes whose
level is exactly right. Reproduce: `python -m pipelines.embedded.evaluate --data .cache/embedded/held` after
`make train`.

{by_length(report)}

{by_attribute(report)}

Cloud - edge over all of them: **{report["gap"]:+.4f}** (paired standard error {report["gap_se"]:.4f}). Entropy tells
ids that the cloud rejects from those it accepts with AUC {report["auc"]:.3f}; where the edge hears another clip's
audio, with {report["auc_wrong"]:.3f}.

## Pairs that differ in one thing

Moderate (duration 1.3 / .77, 135 / 195 Hz, range .5 / 1.6, -33 / -23 dBFS, none / two short pauses, tilt) and large
changes, of held-out voices. Reproduce: `python -m pipelines.embedded.contrast`.

{contrasts(pairs)}
"""
    if args.gate:
        text += GATE + gate([json.loads(line) for line in args.gate.read_text().splitlines()]) + "\n"
    args.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
