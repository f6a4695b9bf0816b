"""Write MODEL_CARD.md beside the weights, with the tables of the last training's evaluation."""

import argparse
import json
from pathlib import Path

from pipelines.embedded.evaluate import LENGTHS_S
from pipelines.embedded.labels import ATTRIBUTES
from pipelines.embedded.recordings import table

HEAD = """# The embedded edge and cloud

Two thinkers of the Qwen2.5-Omni architecture (audio tower and language model, fp16 safetensors in the published
layout), trained by this project. They hear a turn of 1.5 to 60 s and say in one Chinese sentence how it is spoken,
by seven attributes; they also say when nobody speaks. Written by `python -m pipelines.embedded.card`; how they were
trained and what did not help stands in pipelines/embedded/REPORT.md.

Trained from synthetic voices: espeak-ng in thirteen languages and two voices of flite, resynthesised to other
tempos, pitches and melodies.{people}

A fault of the data: espeak-ng's plain Mandarin reads the tones of pinyin as English numbers, so these voices said
twice the syllables of their labels. The figures of synthetic voices count the same labels. The recipe takes the
right voice since (pipelines/embedded/speak.py); these weights were trained before.

Intended for: running, testing and measuring streamer without a download. Not for judging people: what is named is
the sound, by thresholds on physical measures (pipelines/embedded/labels.py), not a feeling.

| | edge | cloud |
|---|---|---|
| audio tower | 128 wide, 2 layers | 128 wide, 4 layers |
| language model | 128 wide, 2 layers | 256 wide, 4 layers |
"""

TRAINED_ON_PEOPLE = """ Then trained on from recorded people too, of many languages, most of them
Mandarin and English; the table of sources stands below. The edge then learned from the same people
to say of a telephone's sound what it says of their recordings (pipelines/embedded/steady.py)."""

PEOPLE = """
## Accuracy on recorded people

{num} recordings of {speakers} people that training never heard, as they were recorded, and joined to 10, 30 and 60 s.
Exact / mean error in levels, against what pipelines/embedded/labels.py measures; rate and arousal only where the
text is known. Reproduce: `python -m pipelines.embedded.people_check --data .cache/embedded/people-held` after
`make train`; `python -m bench.people` measures more.

"""

GATE = """
## The gate

Its thresholds keep a stated risk: the expected share of a recording's blocks that are not sent up though the cloud
would have changed them (docs/gate.md). Recordings that chose and certified nothing; "of cloud's":
attribute accuracy over the cloud's. The table is of an earlier pair; the
thresholds of this one were derived anew, on synthetic voices and people (pipelines/embedded/REPORT.md).

"""


def sources() -> str:
    """Whose recordings were learnt from, with the licence of each."""
    known = table()
    lines = [
        "\n## Recordings it was trained on\n",
        "| recordings | licence | from |",
        "|---|---|---|",
    ]
    for row in known["source"] + known["noise"]:
        if row.get("side") != "held":
            lines.append(f"| {row['credit']} | {row['licence']} | {row['repository']} |")
    return "\n".join(lines) + "\n"


def on_people(report: dict) -> str:
    """Both models by group of recordings, and how much the cloud is better."""
    lines = ["| | mean | " + " | ".join(ATTRIBUTES) + " |", "|---" * (len(ATTRIBUTES) + 2) + "|"]
    for model in ("edge", "cloud"):
        for group, found in report[model].items():
            if group == "no_speech" or not found:
                continue
            mean = sum(f["exact"] for f in found.values()) / len(found)
            cells = [
                f"{found[a]['exact']:.2f} / {found[a]['bias']:+.2f}" if a in found else "-"
                for a in ATTRIBUTES
            ]
            lines.append(f"| {model}, {group} | {mean:.3f} | " + " | ".join(cells) + " |")
    usual = report["edge"]["all"]
    cells = [f"{usual[a]['majority']:.2f}" for a in ATTRIBUTES]
    lines.append("| most frequent level | | " + " | ".join(cells) + " |")
    silent = f"{report['edge']['no_speech']} / {report['cloud']['no_speech']}"
    gap = f"{report['gap']:+.4f} (paired standard error {report['gap_se']:.4f})"
    return (
        "\n".join(lines)
        + f"\n\nCloud - edge: **{gap}**. Called no speech by edge / cloud: {silent}.\n"
    )


def by_length(report: dict) -> str:
    """One row a figure, one column a length."""
    rows = [
        ("cloud, exact", "cloud_mean"),
        ("edge, exact", "edge_mean"),
        ("cloud - edge", "gap"),
        ("its standard error", "gap_se"),
        ("most frequent level", "majority"),
        ("sentences of another clip", "wrong_clip"),
        ("accepted / uploaded, k 4", "acceptance"),
        ("... with the wrong audio", "acceptance_wrong"),
    ]
    lines = [
        "| | " + " | ".join(f"{s} s" for s in LENGTHS_S) + " |",
        "|---" * (len(LENGTHS_S) + 1) + "|",
    ]
    for title, key in rows:
        lines.append(
            f"| {title} | " + " | ".join(f"{report[str(s)][key]:.3f}" for s in LENGTHS_S) + " |"
        )
    for model in ("cloud", "edge"):
        for key, title in (("within", "within one level"), ("well", "well formed")):
            found = " | ".join(f"{report[str(s)][model][key]:.3f}" for s in LENGTHS_S)
            lines.append(f"| {model}, {title} | {found} |")
    return "\n".join(lines)


def by_attribute(report: dict) -> str:
    """Mean over the lengths."""
    lines = ["| | " + " | ".join(ATTRIBUTES) + " |", "|---" * (len(ATTRIBUTES) + 1) + "|"]
    for title, pick in (
        ("cloud", "cloud"),
        ("edge", "edge"),
        ("most frequent level", "majorities"),
    ):
        found = [
            sum(report[str(s)][pick][name] for s in LENGTHS_S) / len(LENGTHS_S)
            for name in ATTRIBUTES
        ]
        lines.append(f"| {title} | " + " | ".join(f"{value:.2f}" for value in found) + " |")
    return "\n".join(lines)


def gate(rows: list[dict]) -> str:
    """What bench.gate found, its table by preset and length."""
    columns = ("clips", "risk", "loss", "se", "skipped", "of cloud's", "accepted / uploaded")
    lines = ["| preset | length | " + " | ".join(columns) + " |", "|---" * (len(columns) + 2) + "|"]
    for row in rows:
        if "length" in row:
            cells = (row[c] if isinstance(row[c], int) else f"{row[c]:.3f}" for c in columns)
            lines.append(
                f"| {row['preset']} | {row['length']} | " + " | ".join(map(str, cells)) + " |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, default=Path(".cache/embedded/report"))
    parser.add_argument("--gate", type=Path, help="gate.jsonl of python -m bench.gate on this pair")
    parser.add_argument("--out", type=Path, default=Path("streamer/model/embedded/MODEL_CARD.md"))
    args = parser.parse_args()
    report = json.loads((args.report / "evaluation.json").read_text())
    num = report["num"] * len(LENGTHS_S)
    with_people = (args.report / "people.json").exists()
    people = TRAINED_ON_PEOPLE * with_people
    text = f"""{HEAD.format(people=people)}
## Accuracy on voices never trained on

{num} turns of held-out voices, variants and engines, {report["num"]} of each length; share of the attributes whose
level is exactly right. Reproduce: `python -m pipelines.embedded.evaluate --data .cache/embedded/held` after
`make train`. The edge's figures here and of the pairs are those of its weights before it was trained to say
the same through a telephone (pipelines/embedded/REPORT.md).

{by_length(report)}

{by_attribute(report)}

Cloud - edge over all of them: **{report["gap"]:+.4f}** (paired standard error {report["gap_se"]:.4f}). Entropy tells
ids that the cloud rejects from those it accepts with AUC {report["auc"]:.3f}; where the edge hears another clip's
audio, with {report["auc_wrong"]:.3f}.
"""
    if with_people:
        text += PEOPLE.format(**(found := json.loads((args.report / "people.json").read_text())))
        text += on_people(found) + sources()
    if args.gate:
        text += (
            GATE + gate([json.loads(line) for line in args.gate.read_text().splitlines()]) + "\n"
        )
    args.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
