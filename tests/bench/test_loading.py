"""bench/loading.py: loading takes little more memory than what stays, in any engine."""

from dataclasses import replace

import pytest

from bench import loading, shapes
from streamer.model.checkpoint.room import PEAK


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The 3B's proportions at a tenth of its width and depth: no matrix is a large share of it."""
    whole = shapes.SIZES["3b"]
    text = replace(whole.text, hidden=512, layers=24, heads=4, ffn=2752, vocab=8_000)
    audio = replace(whole.audio, width=512, layers=8, heads=8, ffn=2048, output=512)
    small = replace(whole, text=text, audio=audio, audio_id=1)
    out = tmp_path_factory.mktemp("loading") / "model"
    shapes.write_model(out, small, shard_bytes=80_000_000)
    return out


@pytest.mark.long
def test_the_peak_is_little_above_what_stays(made):
    found = {(row["engine"], row["way"]): row for row in loading.measured(made, ["int8", "int4"])}
    assert len(found) == 6
    for row in found.values():
        # 30 MB: the libraries' own, which a model of billions does not see
        assert row["peak_gb"] <= PEAK * row["weights_gb"] + 0.03, row
    int8, int4 = (found[engine, "from the checkpoint"] for engine in ("int8", "int4"))
    # Of the layers alone: head and tower keep 8 bits.
    said = int8["weights_gb"] - int4["weights_gb"]
    assert int8["held_gb"] - int4["held_gb"] == pytest.approx(said, rel=0.1)
    assert int4["weights_gb"] < 0.7 * int8["weights_gb"]
