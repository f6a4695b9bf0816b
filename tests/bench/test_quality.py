"""bench/quality.py: its stress arms run on the engine that ships, and go wrong where they
should."""

from pathlib import Path

import speech

from bench.arms import models_of
from bench.clips import Clip
from bench.quality import run_all, stress
from bench.stressed_edges import longer
from streamer.assembly.models import Models


def clips():
    return [
        Clip(f"3s/{i}", Path(f"{i}.wav"), speech.recording(i), {"rate": 2, "loudness": 3})
        for i in range(2)
    ]


def test_each_rule_is_switched_off_where_sentences_go_wrong(tmp_path):
    rules_off = {"none": {}, "n-gram": {"ngram": 0}, "min_new_tokens": {"min_new_tokens": 0}}
    rows = stress(clips(), tmp_path, rules_off)
    assert [(row["arm"], row["num_clips"]) for row in rows] == [(name, 6) for name in rules_off]
    clean, blurred = (
        run_all(models_of(mode="edge", edge=edge), clips(), "")
        for edge in ("embedded", str(tmp_path / "blurred"))
    )
    assert all(a.ids != b.ids for a, b in zip(clean, blurred, strict=True))
    assert all(run.ids for run in blurred)


def test_the_longer_edge_hears_more_than_the_shipped_one(tmp_path):
    models: Models = models_of(mode="edge", edge=str(longer(tmp_path / "longer")))
    assert models.max_turn_s > 90 > models_of(mode="edge").max_turn_s
    clip = Clip("90s/0", Path("0.wav"), speech.speech(90.0), {})
    assert run_all(models, [clip], "")[0].text.endswith("。")
