"""The folder of a run: one run at a time, whole or not at all, nothing of a killed one left."""

import errno
from pathlib import Path

import pytest

from streamer.extras.tune.command import working
from streamer.extras.tune.data import TuneError
from streamer.extras.tune.options import TuneOptions


@pytest.fixture
def options(tmp_path):
    return TuneOptions(recordings=("x",), model="x", out=str(tmp_path / "mine"))


def test_it_is_one_run_s_at_a_time(options):
    with working(options, "f") as work:
        with pytest.raises(TuneError, match="in use by another run"), working(options, "f"):
            pass
        assert work.is_dir()
    with working(options, "f"):
        pass


def test_a_full_disk_takes_nothing_of_an_earlier_run(options, monkeypatch):
    """Where it cannot be written it is not touched."""
    with working(options, "f") as work:
        before = (work / "options.json").read_bytes()

    def full(self, *more, **given):
        self.open("w").close()  # as a full disk leaves it
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with working(options, "f"):
        assert (work / "options.json").read_bytes() == before
    (work / "options.json").unlink()
    with pytest.raises(TuneError, match="No space left"), working(options, "f"):
        pass
    assert not (work / "options.json").exists()  # an empty file could not be continued from


def test_what_a_killed_run_was_merging_goes(options):
    with working(options, "f") as work:
        (work / "half-abc").mkdir()
        (work / "half-abc" / "model.safetensors").write_bytes(b"x")
    with working(options, "f"):
        assert [path.name for path in work.iterdir()] == ["options.json"]
