"""docs/gate.md shows the losses of bench/results."""

import json
import re

import pytest
from places import ROOT

ROWS = map(json.loads, (ROOT / "bench/results/gate.jsonl").read_text("utf-8").splitlines())
LOSSES = {(row["preset"], row["length"]): row["loss"] for row in ROWS if "length" in row}


@pytest.mark.parametrize("preset", ["fluent", "quality"])
def test_the_page_s_losses_are_the_bench_s(preset):
    page = (ROOT / "docs/gate.md").read_text("utf-8")
    (cells,) = re.findall(rf"^\| {preset}, promised [^|]+: \*\*loss\*\* \|(.+)\|$", page, re.M)
    measured = [LOSSES[preset, length] for length in ("3 s", "10 s", "30 s", "60 s", "all")]
    assert [float(cell) for cell in cells.split("|")] == pytest.approx(measured, abs=0.0006)
