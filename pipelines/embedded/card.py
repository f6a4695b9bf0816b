"""Write MODEL_CARD.md beside the weights, with the tables of the last evaluation."""

import argparse
import json
from pathlib import Path

from pipelines.embedded.evaluate import GROUPS, LENGTHS_S
from pipelines.embedded.labels import ATTRIBUTES
from pipelines.embedded.model import SIZES
from pipelines.embedded.recordings import table

HEAD = """# The embedded edge and cloud

Two thinkers of the Qwen2.5-Omni architecture (audio tower and language model, fp16 safetensors in the published
layout), trained by this project. They hear a turn of 1.5 to 60 s and say in one sentence how it is spoken, by seven
attributes. They also report turns without speech. `python -m pipelines.embedded.card` wrote this page;
pipelines/embedded/REPORT.md says how the weights were trained.

They learnt from synthetic voices: espeak-ng in thirteen languages and two voices of flite, resynthesised to other
tempos, pitches and melodies.{people}

Intended for: running, testing and measuring streamer without a download. Not for judging people: a sentence names the
sound, by thresholds on physical measures (pipelines/embedded/labels.py), not a feeling.

"""
ON_PEOPLE = (
    " They also learnt from recorded people of many languages; the sources are listed below."
)
VOICES = """
## Accuracy on voices never trained on

{num} turns of held-out voices, variants and engines. Exact / mean error in levels, of the models alone. Reproduce:
`python -m pipelines.embedded.evaluate --data .cache/embedded/held` after `make train`.

"""
PEOPLE = """
## Accuracy on recorded people

{num} recordings of {speakers} people that training never heard, as they were recorded and joined to 10, 30 and 60 s.
Exact / mean error in levels, of the models alone, against what pipelines/embedded/labels.py measures; rate and arousal
only where the text is known. Reproduce: `python -m pipelines.embedded.evaluate --people .cache/embedded/people-held`
after `make train`; `python -m bench.people` evaluates the sentences of the product.

"""
GATE = """
## The gate

Its thresholds keep a stated risk: the expected share of a recording's blocks that are not sent up though the cloud
would have changed them (docs/gate.md). On recordings of people that calibrated nothing:

"""


def rows_of(*rows: list[str]) -> str:
    """A Markdown table; the first row is its head."""
    head, *others = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *others]) + "\n"


def sizes() -> str:
    """Widths and depths of both models."""
    both = [SIZES[name] for name in ("edge", "cloud")]
    return rows_of(
        ["", "edge", "cloud"],
        ["audio tower", *(f"{s.tower_width} wide, {s.tower_layers} layers" for s in both)],
        ["language model", *(f"{s.text_width} wide, {s.text_layers} layers" for s in both)],
    )


def accuracy(report: dict, groups: list[str]) -> str:
    """Both models by group, and by how much the cloud is better."""
    rows = [["", "mean", *ATTRIBUTES]]
    for model in ("edge", "cloud"):
        for group in (name for name in groups if report[model][name]):
            found = report[model][group]
            mean = sum(f["exact"] for f in found.values()) / len(found)
            cells = [
                f"{found[a]['exact']:.2f} / {found[a]['bias']:+.2f}" if a in found else "-"
                for a in ATTRIBUTES
            ]
            rows.append([f"{model}, {group}", f"{mean:.3f}", *cells])
    usual = report["edge"][groups[0]]
    cells = [f"{usual[a]['majority']:.2f}" if a in usual else "-" for a in ATTRIBUTES]
    rows.append([f"most frequent level, {groups[0]}", "", *cells])
    silent = f"{report['edge']['no_speech']} / {report['cloud']['no_speech']}"
    gap = f"{report['gap']:+.4f} (paired standard error {report['gap_se']:.4f})"
    return (
        rows_of(*rows) + f"\nCloud - edge: **{gap}**. Called no speech by edge / cloud: {silent}.\n"
    )


def gate(rows: list[dict]) -> str:
    """The table of `gate check`, by preset and length."""
    columns = ("preset", "risk", "length", "recordings", "loss", "se", "skipped")
    cells = [
        [f"{r[c]:.3f}" if isinstance(r[c], float) else str(r[c]) for c in columns] for r in rows
    ]
    return rows_of(list(columns), *cells)


def sources() -> str:
    """The recordings of the training side, with the licence of each."""
    known = table()
    used = [row for row in known["source"] + known["noise"] if row.get("side") != "held"]
    cells = [[row["credit"], row["licence"], row["repository"]] for row in used]
    return "\n## Recordings it was trained on\n\n" + rows_of(
        ["recordings", "licence", "from"], *cells
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, default=Path(".cache/embedded/report"))
    parser.add_argument("--out", type=Path, default=Path("streamer/model/embedded/MODEL_CARD.md"))
    args = parser.parse_args()
    found = {file.stem: json.loads(file.read_text("utf-8")) for file in args.report.glob("*.json")}
    people = found.get("people")
    text = HEAD.format(people=ON_PEOPLE if people else "") + sizes()
    text += VOICES.format(**found["voices"])
    text += accuracy(found["voices"], [f"{seconds} s" for seconds in LENGTHS_S])
    if people:
        text += PEOPLE.format(**people) + accuracy(people, list(GROUPS)) + sources()
    if "gate" in found:
        text += GATE + gate(found["gate"])
    args.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
