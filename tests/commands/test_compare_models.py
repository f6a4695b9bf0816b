"""`streamer compare`: differences with their errors; `streamer models`: a broken one is a line."""

import json
import re
import shutil

import pytest
from places import ROOT
from processes import run_here

from streamer.cli import main
from streamer.commands.compare import row_of
from streamer.core.attributes import ATTRIBUTES, Reading
from streamer.core.text.chinese import told
from streamer.model.checkpoint.weights import fingerprint_of

SLOW, FAST = (str(ROOT / "samples" / f"{name}.wav") for name in ("slow_soft", "fast_loud"))


def of(name, value, error, level=1):
    return Reading(name, level, 5, "name", value, error, "unit", None)


@pytest.mark.parametrize(
    ("first", "second", "numbers", "verdict"),
    [
        (-23.24, -23.68, "-23.2 → -23.7 unit -0.5 ±0.2", "perhaps softer"),
        (-23.6, -24.4, "-23.6 → -24.4 unit -0.8 ±0.2", "softer"),
        (-23.24, -23.26, "-23 → -23 unit +0 ±1", "the same, within the error"),
        (-37.0, -15.0, "-37 → -15 unit +22 ±1", "louder"),
    ],
)
def test_a_word_agrees_with_the_numbers_beside_it(first, second, numbers, verdict):
    """A difference is never shown as 0, and equality never as -0."""
    takes = (of("loudness", first, 0.15), of("loudness", second, 0.15))
    title, *shown, word = row_of(*takes, "en")
    assert (title, " ".join(shown), word) == ("loudness", numbers, verdict)


def test_two_takes_are_a_table_and_json():
    lines = run_here("compare", SLOW, FAST)[1].splitlines()
    assert lines[0].startswith(f"{SLOW}: 说话人")
    assert lines[1].startswith(f"{FAST}: 说话人")
    assert [line.split()[0] for line in lines[2:]] == [told("zh", name) for name in ATTRIBUTES]
    assert re.fullmatch(r"  语速 +[\d.]+ → [\d.]+ 音节/秒 +\+[\d.]+ ±[\d.]+ +更快", lines[2])
    english = run_here("compare", SLOW, FAST, "--language", "en")[1].splitlines()
    assert [line.split()[0] for line in english[2:]] == list(ATTRIBUTES)
    row = json.loads(run_here("compare", SLOW, FAST, "--json")[1])
    rate = row["attributes"]["rate"]
    assert rate["difference"] == pytest.approx(rate["second"]["value"] - rate["first"]["value"])
    assert (row["first"]["file"], rate["verdict"]) == (SLOW, "faster")


def test_models_are_listed_by_name_and_a_broken_one_hides_no_other(
    tiny_pair, tmp_path, capsys, monkeypatch
):
    """A model, a directory of models, one that does not exist, and two in the hub's cache."""
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    cached = [
        shutil.copytree(
            tiny_pair[0], tmp_path / f"hub/models--Qwen--Qwen2.5-Omni-{name}/snapshots/abc"
        )
        for name in ("A", "B")
    ]
    (cached[1] / "config.json").write_text("no JSON")
    mine, other = (
        shutil.copytree(model, tmp_path / "models" / name)
        for model, name in zip(tiny_pair, ("mine", "other"), strict=True)
    )
    given = [str(path) for path in (tiny_pair[0], tmp_path / "models", tmp_path / "none")]
    assert main(["models", "--json", *given]) == 1
    out, err = capsys.readouterr()
    rows = json.loads(out)["models"]
    specs = ["embedded", "embedded", "Qwen/Qwen2.5-Omni-A", given[0], str(mine), str(other)]
    assert [row["spec"] for row in rows] == specs
    wanted = [fingerprint_of(found) for found in (cached[0], mine, mine, other)]
    assert [row["fingerprint"] for row in rows[2:]] == wanted
    assert rows[-2]["megabytes"] < rows[-1]["megabytes"]
    broken, absent = err.splitlines()
    assert broken.startswith(f"streamer: {cached[1]}")
    told = "no such directory; give one that holds a model's config.json, or such ones"
    assert absent == f"streamer: {given[2]}: {told}"
    main(["models", str(mine)])
    assert f"{mine} (either)" in capsys.readouterr().out.splitlines()
