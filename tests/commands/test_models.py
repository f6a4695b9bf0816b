"""`streamer models` over a hub cache in which some snapshots are broken: one line for each, and the
others listed.

Directories of one's own beside them, and the devices.
"""

import json
import shutil

import pytest

from streamer.cli import main
from streamer.model.checkpoint.weights import fingerprint_of


@pytest.fixture
def snapshot(tiny_pair, tmp_path, monkeypatch):
    """Makes one more snapshot of a real tiny checkpoint in a hub cache, harmed by writing `text`
    into `name`."""
    monkeypatch.setenv("HF_HOME", str(tmp_path))

    def make(model, name=None, text=""):
        directory = tmp_path / "hub" / f"models--Qwen--Qwen2.5-Omni-{model}" / "snapshots" / "abc"
        shutil.copytree(tiny_pair[0], directory)
        if name:
            (directory / name).write_text(text)
        return directory

    return make


def listed(capsys, status):
    assert main(["models", "--json"]) == status
    out, err = capsys.readouterr()
    return [row["spec"] for row in json.loads(out)["models"]], err.splitlines()


def test_every_broken_snapshot_is_one_line_and_hides_no_other(snapshot, capsys):
    wider = json.loads((snapshot("A-good") / "config.json").read_text())
    wider["text_config"]["intermediate_size"] = 40
    snapshot("B-config", "config.json", "[" * 100_000)
    snapshot("C-misfit", "config.json", json.dumps(wider))
    snapshot("D-card", "streamer.json", '{"attributes": {"rate": [{"phrases": ["a"]}]}}')
    snapshot("E-index", "model.safetensors.index.json", '{"weight_map": {"a": 1}}')
    cut = snapshot("F-cut") / "model.safetensors"
    cut.write_bytes(cut.read_bytes()[:-64])
    snapshot("G-good")
    specs, lines = listed(capsys, 1)
    assert specs == ["embedded", "embedded", "Qwen/Qwen2.5-Omni-A-good", "Qwen/Qwen2.5-Omni-G-good"]
    assert len(lines) == 5
    wanted = (
        "recursion",
        "different models",
        "required field `name`",
        "not a safetensors index",
        "the weights cannot be read",
    )
    for letter, reason, line in zip("BCDEF", wanted, lines, strict=True):
        assert f"Omni-{letter}-" in line
        assert reason in line


def test_directories_of_ones_own_are_listed_by_name(tiny_pair, tmp_path, capsys):
    """A model, a directory of models, and one that does not exist."""
    mine = shutil.copytree(tiny_pair[0], tmp_path / "models" / "mine")
    other = shutil.copytree(tiny_pair[1], tmp_path / "models" / "other")
    assert (
        main(
            [
                "models",
                "--json",
                str(tiny_pair[0]),
                str(tmp_path / "models"),
                str(tmp_path / "none"),
            ]
        )
        == 1
    )
    out, err = capsys.readouterr()
    rows = json.loads(out)["models"][-3:]
    assert [row["spec"] for row in rows] == [str(tiny_pair[0]), str(mine), str(other)]
    assert [row["fingerprint"] for row in rows] == [
        fingerprint_of(found) for found in (mine, mine, other)
    ]
    assert rows[1]["megabytes"] < rows[2]["megabytes"]
    assert (
        err
        == f"streamer: {tmp_path / 'none'}: no such directory; give one that holds a model's config.json, or such ones\n"
    )
    assert main(["models", str(mine)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"{mine} (either)" in lines
    assert all(len(line) <= 80 for line in lines if not line.startswith(str(mine)))
