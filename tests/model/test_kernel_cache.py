"""Kernels that cannot be kept, or not be read back, are compiled again: each in a process of its
own, on a small function."""

import os
import subprocess
import sys

import pytest

CODE = """
import numba, resource, sys
from streamer.model.kernel_cache import kernel_cache

if sys.argv[1] == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
kernel_cache()
sys.path.insert(0, ".")
import work
print(work.add(2, 3), kernel_cache().why_lost)
"""


def run(folder, how):
    (folder / "run.py").write_text(CODE)
    (folder / "work.py").write_text(
        "import numba\n\n@numba.njit(cache=True)\ndef add(a, b):\n    return a + b\n"
    )
    done = subprocess.run(
        [sys.executable, "run.py", how],
        cwd=folder,
        env=os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip(), done.stderr


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder whose function is compiled and kept."""
    folder = tmp_path_factory.mktemp("kept")
    out, told = run(folder, "")
    assert (out, told) == ("5 None", "")
    return folder


def test_a_full_disk_costs_time_and_one_line(tmp_path):
    out, told = run(tmp_path, "full")
    assert out == "5 File too large"
    assert told.count("cannot be kept in") == 1
    assert "NUMBA_CACHE_DIR" in told


@pytest.mark.parametrize(("name", "size"), [("*.nbc", 40), ("*.nbi", 0)])
def test_a_damaged_file_costs_time_alone(kept, name, size):
    (file,) = kept.glob(f"cache/**/{name}")
    data = file.read_bytes()
    file.write_bytes(data[:size])
    out, told = run(kept, "")
    assert (out, told) == ("5 None", "")
    assert file.stat().st_size > size, "it is kept anew"
