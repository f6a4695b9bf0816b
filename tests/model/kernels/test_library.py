"""Compiled kernels on disk: which directories are trusted, and what a bad one costs."""

import functools
import os
import resource
import shutil
import stat
import sys
from pathlib import Path

import pytest
from processes import ended

from streamer.model.kernels.library import KernelWarning, kernel_directory

STREAMER = Path(sys.executable).with_name("streamer")
SAMPLE = Path("samples/plain.wav").absolute()
ANOTHER = 12_345  # a user
DESCRIBE = f"import streamer; print(streamer.describe({str(SAMPLE)!r}).stop_reason)"
DOORS = {
    "the command": [STREAMER, "describe", "--quiet", SAMPLE],
    "a notebook": [sys.executable, "-P", "-c", DESCRIBE],
    "workers": [STREAMER, "label", SAMPLE, "--jobs", "2", "--out", "rows.jsonl"],
}


@pytest.mark.parametrize("door", DOORS)
def test_nothing_of_the_working_directory_is_read(door, tmp_path):
    (tmp_path / ".numba_config.yaml").write_text("[cache_dir, here]\n")
    for name in ("numpy", "yaml", "pickle", "multiprocessing", "anyio"):
        (tmp_path / f"{name}.py").write_text("open('it_ran', 'w').close()\n")
    done = ended(*DOORS[door], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert not [*tmp_path.rglob("it_ran"), *tmp_path.rglob("*.nb?")]


SPOILERS = {  # what happens to a directory, and why it is not used then
    "shared": (lambda path: path.chmod(0o777), "can be written by others"),
    "given away above": (
        lambda path: os.chown(path.parent, ANOTHER, ANOTHER),
        "belongs to another user",
    ),
}


@pytest.mark.parametrize("spoiler", SPOILERS)
def test_what_others_could_have_written_is_not_used(spoiler, tmp_path, monkeypatch):
    spoil, why = SPOILERS[spoiler]
    if "given" in spoiler and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "chosen"))
    chosen, is_kept = kernel_directory.__wrapped__()
    assert is_kept
    assert {stat.S_IMODE(path.stat().st_mode) for path in (chosen, chosen.parent)} == {0o700}
    spoil(chosen)
    with pytest.warns(KernelWarning, match=why) as told:
        assert not kernel_directory.__wrapped__()[1]
    assert len(told) == 1
    assert str(chosen.parent) in str(told[0].message)


NUMBERS = """
import numpy as np
from streamer.model.kernels.library import kernel
random = np.random.default_rng(0)
w = random.normal(0, .1, 40 * 32).astype(np.float32)
x, y = random.normal(0, 1, 3 * 40).astype(np.float32), np.zeros(3 * 32, np.float32)
kernel("filter rows")(x, w, np.array([3, 40, 32]), y)
print(y.tobytes().hex())
"""


def run(folder, limit=resource.RLIM_INFINITY):
    """stdout and stderr of NUMBERS with kernels in `folder`, where files have at most `limit` bytes."""
    limited = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit, limit))
    env = os.environ | {"NUMBA_CACHE_DIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = ended(sys.executable, "-c", NUMBERS, env=env, preexec_fn=limited)
    return done.stdout, done.stderr


def test_an_empty_file_is_made_anew_and_a_full_disk_is_one_line(tmp_path):
    directory = kernel_directory()[0]
    there = tmp_path / "streamer" / "kernels"
    file = shutil.copytree(directory, there / directory.name) / "filter rows.o"
    for path in (tmp_path / "streamer", there, file.parent):
        path.chmod(0o700)
    wanted = run(tmp_path)
    file.write_bytes(b"")
    out, told = run(tmp_path, limit=10)
    assert out == ""
    assert "File too large); make room there" in told.splitlines()[-1]
    assert run(tmp_path) == wanted
