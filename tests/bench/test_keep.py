"""bench/keep.py: a run changes the tracked results only where it is asked to, and no bench writes
past it."""

import argparse
import json
import re
from pathlib import Path

import pytest

from bench import common, keep

BENCH = Path(keep.__file__).parent
WRITES = re.compile(r"from bench\.common import .*\bwrite\b")


@pytest.fixture
def folders(tmp_path, monkeypatch):
    for name in ("RESULTS", "OWN"):
        monkeypatch.setattr(keep, name, tmp_path / name)
    monkeypatch.setattr(keep, "folder", tmp_path / "OWN")
    return tmp_path


@pytest.mark.parametrize(("argv", "where"), [([], "OWN"), (["--keep"], "RESULTS")])
def test_results_are_kept_when_asked(folders, argv, where):
    parser = argparse.ArgumentParser()
    parser.add_argument("--num", type=int, default=3)
    assert keep.options_of(parser, argv).num == 3
    file = common.write("some", [{"a": 1}])
    assert file == folders / where / "some.jsonl"
    assert [path.name for path in folders.iterdir()] == [where], "the other folder is not touched"
    assert json.loads(file.read_text("utf-8").splitlines()[1]) == {"a": 1}
    assert keep.place("some.png") == folders / where / "some.png"


def test_the_default_is_not_tracked():
    assert keep.folder == keep.OWN != keep.RESULTS == BENCH / "results"
    assert keep.OWN.relative_to(BENCH.parent).parts[0] == ".cache"


def test_every_bench_that_writes_takes_keep():
    texts = {
        file.name: file.read_text("utf-8")
        for file in BENCH.glob("*.py")
        if file.name not in ("keep.py", "common.py")
    }
    # a result is written by bench.common's write
    writing = [name for name, text in texts.items() if WRITES.search(text)]
    assert len(writing) >= 12
    assert [name for name in writing if "options_of(" not in texts[name]] == []
    assert [name for name, text in texts.items() if "RESULTS" in text or '"results"' in text] == []
