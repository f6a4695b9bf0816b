"""`streamer models`: the shipped pair, the hub's cache and own directories; a broken one is a line."""

import json
import shutil

from streamer.cli import main
from streamer.model.checkpoint.weights import fingerprint_of


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
