"""Write MODEL_CARD.md beside the weights, with the tables of the last evaluation."""

import argparse
import json
from pathlib import Path

from bench.common import table, table_of
from pipelines.embedded import recordings
from pipelines.embedded.labels import ATTRIBUTES
from pipelines.embedded.model import SIZES

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

{num} turns of {speakers} held-out voices, variants and engines. Exact / mean error in levels, of the models alone.
Reproduce: `python -m bench.people --words models --data .cache/embedded/gate/voices` after `make train`.

"""
PEOPLE = """
## Accuracy on recorded people

{num} recordings of {speakers} people that training never heard, as they were recorded; below, turns joined to 10, 30
and 60 s. Exact / mean error in levels, of the models alone, against what pipelines/embedded/labels.py measures; rate
and arousal only where the text is known. Reproduce: `python -m bench.people --words models --data
.cache/embedded/people-held` after `make train`; without `--words` it evaluates the sentences of the product.

"""
GATE = """
## The gate

Its thresholds keep a stated risk: the expected share of a recording's blocks that are not sent up though the cloud
would have changed them (docs/gate.md). On recordings of people that calibrated nothing:

"""


def sizes() -> str:
    """Widths and depths of both models."""
    both = [SIZES[name] for name in ("edge", "cloud")]
    rows = [
        ["audio tower", *(f"{s.tower_width} wide, {s.tower_layers} layers" for s in both)],
        ["language model", *(f"{s.text_width} wide, {s.text_layers} layers" for s in both)],
    ]
    return table(["", "edge", "cloud"], rows)


def accuracy(rows: list[dict]) -> str:
    """Both models by group, and by how much the cloud is better; rows of bench.people."""
    lines = []
    groups = [row for row in rows if row["by"] in ("all", "language", "length")]
    for row in (row for row in groups if "mode" in row):
        each = [row[name] for name in ATTRIBUTES]
        cells = [f"{a['exact']:.2f} / {a['bias']:+.2f}" if a["n"] else "-" for a in each]
        lines.append([f"{row['mode']}, {row['group']}", f"{row['mean']:.3f}", *cells])
    edge, cloud = (of_all(rows, "mode", mode) for mode in ("edge", "cloud"))
    usual = [f"{edge[a]['constant']:.2f}" if edge[a]["n"] else "-" for a in ATTRIBUTES]
    lines.append(["most frequent level, all", "", *usual])
    silent = f"{edge['called no speech']} / {cloud['called no speech']}"
    found = of_all(rows, "gap", "cloud - edge")
    gap = f"{found['mean']:+.4f} (paired standard error {found['se']:.4f})"
    told = f"Cloud - edge: **{gap}**. Called no speech by edge / cloud: {silent}."
    return f"{table(['', 'mean', *ATTRIBUTES], lines)}\n\n{told}\n"


def of_all(rows: list[dict], key: str, value: str) -> dict:
    """The row over all clips with this value."""
    return next(row for row in rows if row["by"] == "all" and row.get(key) == value)


def sources() -> str:
    """The recordings of the training side, with the licence of each."""
    known = recordings.table()
    used = [row for row in known["source"] + known["noise"] if row.get("side") != "held"]
    cells = [[row["credit"], row["licence"], row["repository"]] for row in used]
    found = table(["recordings", "licence", "from"], cells)
    return f"\n## Recordings it was trained on\n\n{found}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, default=Path(".cache/embedded/report"))
    parser.add_argument("--out", type=Path, default=Path("streamer/model/embedded/MODEL_CARD.md"))
    args = parser.parse_args()
    text = HEAD.format(people=ON_PEOPLE if (args.report / "people.jsonl").exists() else "")
    text += sizes() + "\n"
    for name, title in (("voices", VOICES), ("people", PEOPLE)):
        if (file := args.report / f"{name}.jsonl").exists():
            _, *rows = map(json.loads, file.read_text("utf-8").splitlines())
            edge = of_all(rows, "mode", "edge")
            text += title.format(num=edge["clips"], speakers=edge["speakers"]) + accuracy(rows)
            text += sources() if name == "people" else ""
    if (file := args.report / "gate.json").exists():
        text += GATE + table_of(json.loads(file.read_text("utf-8"))) + "\n"
    args.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
