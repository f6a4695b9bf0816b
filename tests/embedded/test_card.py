"""docs/gate.md and the model card show the losses of bench/results."""

import json
import re

import pytest
from places import ROOT

ROWS = json.loads((ROOT / "bench/results/gate.json").read_text("utf-8"))
CARD = "streamer/model/embedded/MODEL_CARD.md"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['preset']} {row['length']}")
def test_the_card_has_each_row(row):
    told = [f"{row[name]:.3f}" for name in ("risk", "loss", "se", "skipped")]
    line = "| {preset} | {} | {length} | {recordings} | {} | {} | {} |".format(*told, **row)
    assert line in (ROOT / CARD).read_text("utf-8")


@pytest.mark.parametrize("preset", ["fluent", "quality"])
def test_the_page_has_the_loss_over_all(preset):
    (row,) = (r for r in ROWS if r["preset"] == preset and r["length"] == "0-61 s")
    page = (ROOT / "docs/gate.md").read_text("utf-8").replace("**", "")
    kept = rf"{row['recordings']} | {row['loss']:.3f} | {row['se']:.3f} | "
    assert re.search(re.escape(kept), page)
    assert f"promise a loss of {ROWS[0]['risk']:.2f}" in page
