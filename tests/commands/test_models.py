"""`streamer models`: a broken snapshot is one line, the others and own directories are listed."""

import json
import shutil

import pytest

from streamer.cli import main
from streamer.model.checkpoint.weights import fingerprint_of


@pytest.fixture
def snapshot(tiny_pair, tmp_path, monkeypatch):
    """Copies a tiny checkpoint into a hub cache, and writes `text` into its file `name`."""
    monkeypatch.setenv("HF_HOME", str(tmp_path))

    def make(model, name=None, text=""):
        directory = tmp_path / "hub" / f"models--Qwen--Qwen2.5-Omni-{model}" / "snapshots" / "abc"
        shutil.copytree(tiny_pair[0], directory)
        if name:
            (directory / name).write_text(text)
        return directory

    return make


def test_a_broken_snapshot_is_one_line_and_hides_no_other(snapshot, capsys):
    """By its configuration, its card or its weights; for others, see test_broken.py."""
    snapshot("A-good")
    snapshot("B-bad", "config.json", "[" * 100_000)
    snapshot("C-bad", "streamer.json", '{"attributes": {"rate": [{"phrases": ["a"]}]}}')
    cut = snapshot("D-bad") / "model.safetensors"
    cut.write_bytes(cut.read_bytes()[:-64])
    snapshot("E-good")
    assert main(["models", "--json"]) == 1
    out, err = capsys.readouterr()
    specs = [row["spec"] for row in json.loads(out)["models"]]
    assert specs == ["embedded"] * 2 + [f"Qwen/Qwen2.5-Omni-{letter}-good" for letter in "AE"]
    reasons = ("recursion", "field `name`", "the weights cannot be read")
    for letter, reason, line in zip("BCD", reasons, err.splitlines(), strict=True):
        assert (f"Omni-{letter}-" in line, reason in line) == (True, True)


def test_directories_of_ones_own_are_listed_by_name(tiny_pair, tmp_path, capsys):
    """A model, a directory of models, and one that does not exist."""
    mine, other = (
        shutil.copytree(model, tmp_path / "models" / name)
        for model, name in zip(tiny_pair, ("mine", "other"), strict=True)
    )
    given = [str(path) for path in (tiny_pair[0], tmp_path / "models", tmp_path / "none")]
    assert main(["models", "--json", *given]) == 1
    out, err = capsys.readouterr()
    rows = json.loads(out)["models"][-3:]
    assert [row["spec"] for row in rows] == [given[0], str(mine), str(other)]
    wanted = [fingerprint_of(found) for found in (mine, mine, other)]
    assert [row["fingerprint"] for row in rows] == wanted
    assert rows[1]["megabytes"] < rows[2]["megabytes"]
    told = "no such directory; give one that holds a model's config.json, or such ones"
    assert err == f"streamer: {given[2]}: {told}\n"
    assert main(["models", str(mine)]) == 0
    assert f"{mine} (either)" in capsys.readouterr().out.splitlines()
