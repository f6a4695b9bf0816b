"""The model card, docs/gate.md and bench/results tell one gate: what was measured last."""

import json
import re

import pytest
from places import ROOT

from pipelines.embedded.card import GATE, gate

ROWS = [
    json.loads(line) for line in (ROOT / "bench/results/gate.jsonl").read_text("utf-8").splitlines()
]
LOSSES = {(row["preset"], row["length"]): row["loss"] for row in ROWS if "length" in row}


def test_the_card_s_gate_is_the_bench_s():
    card = (ROOT / "streamer/model/embedded/MODEL_CARD.md").read_text("utf-8")
    assert card.endswith(GATE + gate(ROWS) + "\n")


@pytest.mark.parametrize("preset", ["fluent", "quality"])
def test_the_page_s_losses_are_the_bench_s(preset):
    page = (ROOT / "docs/gate.md").read_text("utf-8")
    (cells,) = re.findall(rf"^\| {preset}, promised [^|]+: \*\*loss\*\* \|(.+)\|$", page, re.M)
    measured = [LOSSES[preset, length] for length in ("3 s", "10 s", "30 s", "60 s", "all")]
    assert [float(cell) for cell in cells.split("|")] == pytest.approx(measured, abs=0.0006)
