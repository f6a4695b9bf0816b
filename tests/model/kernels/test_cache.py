"""Compiled kernels on disk: which directories are trusted, and what a bad one costs."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from streamer.model.kernels import arithmetic, cache
from streamer.model.kernels.cache import CacheWarning, kernel_directory

STREAMER = Path(sys.executable).with_name("streamer")
SAMPLE = Path("samples/plain.wav").absolute()
SOURCES = Path(arithmetic.__file__).parent
ANOTHER = 12_345  # a user
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
DESCRIBE = f"import streamer; print(streamer.describe({str(SAMPLE)!r}).stop_reason)"
DOORS = {
    "the command": [STREAMER, "describe", "--quiet", SAMPLE],
    "python -m": [sys.executable, "-m", "streamer", "describe", "--quiet", SAMPLE],
    "a notebook": [sys.executable, "-P", "-c", DESCRIBE],
    "after numba": [
        *(sys.executable, "-P", "-c"),
        f"import numba, os; os.chdir('hostile'); os.environ['NUMBA_OPT'] = '2'; {DESCRIBE}",
    ],
    "workers": [STREAMER, "label", SAMPLE, "--jobs", "2", "--out", "rows.jsonl"],
}


@pytest.mark.parametrize("door", DOORS)
def test_nothing_of_the_working_directory_is_read(door, tmp_path):
    """numba fails on a settings file that is a list; a module would leave its mark."""
    hostile = tmp_path / "hostile" if door == "after numba" else tmp_path
    hostile.mkdir(exist_ok=True)
    (hostile / ".numba_config.yaml").write_text("[cache_dir, here]\n")
    for name in ("numpy", "yaml", "pickle", "multiprocessing", "anyio"):
        (hostile / f"{name}.py").write_text("open('it_ran', 'w').close()\n")
    done = subprocess.run(DOORS[door], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert not [*tmp_path.rglob("it_ran"), *tmp_path.rglob("*.nb?")]


def test_numba_keeps_its_settings_from_elsewhere(tmp_path):
    """A program that has imported numba before keeps what it has set."""
    (tmp_path / ".numba_config.yaml").write_text("loop_vectorize: 0\n")
    code = "import numba, streamer.model.kernels.arithmetic as a; a.exp(1.0)\nprint(numba.config.LOOP_VECTORIZE)"
    env = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.stdout == "0\n", done.stderr


def shared(path):
    path.chmod(0o777)


def shared_with_a_group(path):
    path.chmod(0o770)


def shared_above(path):
    path.parent.chmod(0o777)


def given_away(path):
    os.chown(path, ANOTHER, ANOTHER)


def given_away_above(path):
    os.chown(path.parent, ANOTHER, ANOTHER)


def linked_by_another(path):
    path.rename(path.with_name("real"))
    path.symlink_to("real")
    os.chown(path, ANOTHER, ANOTHER, follow_symlinks=False)


def with_a_file_of_another(path):
    (path / "exp.nbi").touch()
    os.chown(path / "exp.nbi", ANOTHER, ANOTHER)


def with_a_link(path):
    (path / "exp.nbi").symlink_to("/dev/null")


def in_a_circle(path):
    path.rmdir()
    path.symlink_to(path.name)


def no_directory(path):
    path.rmdir()
    path.touch()


@pytest.fixture
def places(tmp_path, monkeypatch):
    """The directory in NUMBA_CACHE_DIR and the user's own, as they are when both are good."""
    cache._warn.cache_clear()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "chosen"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    chosen = kernel_directory.__wrapped__(SOURCES)
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    own = kernel_directory.__wrapped__(SOURCES)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "chosen"))
    return chosen, own


def test_a_new_directory_is_the_users_alone(places, tmp_path):
    chosen, own = places
    assert chosen.parent == tmp_path / "chosen" / "streamer"
    assert own.parent == tmp_path / "own" / "streamer" / "kernels"
    for path in (chosen, *chosen.parents[:2], own, *own.parents[:3]):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (shared, "can be written by others"),
        (shared_with_a_group, "can be written by others"),
        (shared_above, "can be written by others"),
        (with_a_link, "is no regular file"),
        (in_a_circle, "too many links"),
        (no_directory, "is no directory"),
        pytest.param(given_away, "belongs to another user", marks=needs_root),
        pytest.param(given_away_above, "belongs to another user", marks=needs_root),
        pytest.param(linked_by_another, "belongs to another user", marks=needs_root),
        pytest.param(with_a_file_of_another, "belongs to another user", marks=needs_root),
    ],
)
def test_what_others_could_have_written_is_not_used(spoil, why, places):
    chosen, own = places
    spoil(chosen)
    with pytest.warns(CacheWarning, match=why) as told:
        assert kernel_directory.__wrapped__(SOURCES) == own
    assert len(told) == 1
    assert str(chosen.parent) in str(told[0].message)
    spoil(own)
    with pytest.warns(CacheWarning, match=why):
        assert kernel_directory.__wrapped__(SOURCES) is None


def test_a_relative_directory_is_not_used(places, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", "chosen")
    with pytest.warns(CacheWarning, match="NUMBA_CACHE_DIR=chosen .a relative path"):
        assert kernel_directory.__wrapped__(SOURCES) == places[1]


def test_a_directory_with_the_sticky_bit_may_hold_one_of_the_users(places, monkeypatch, tmp_path):
    (tmp_path / "common").mkdir()
    (tmp_path / "common").chmod(0o1777)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "common"))
    found = kernel_directory.__wrapped__(SOURCES)
    assert found.is_relative_to(tmp_path / "common")


def test_old_versions_are_removed(places, monkeypatch):
    chosen, _ = places
    for i in range(20):
        (chosen.parent / f"0.0.{i}").mkdir()
        os.utime(chosen.parent / f"0.0.{i}", (i, i))
    chosen.rmdir()
    assert kernel_directory.__wrapped__(SOURCES) == chosen
    left = {path.name for path in chosen.parent.iterdir()}
    assert left == {chosen.name, *(f"0.0.{i}" for i in range(13, 20))}


CODE = """
import numba, resource, sys
from streamer.model.kernels.cache import KernelCache, keep

if sys.argv[1] == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
sys.path.insert(0, ".")
import work
print(keep(numba.njit(work.add))(2, 3), KernelCache.why_lost)
"""


def run(folder, how):
    (folder / "run.py").write_text(CODE)
    (folder / "work.py").write_text("def add(a, b):\n    return a + b\n")
    done = subprocess.run(
        [sys.executable, "run.py", how],
        cwd=folder,
        env=os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"},
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
    assert told.count("are not kept in") == 1
    assert "NUMBA_CACHE_DIR" in told


@pytest.mark.parametrize(("name", "size"), [("*.nbc", 40), ("*.nbi", 0)])
def test_a_damaged_file_costs_time_alone(kept, name, size):
    (file,) = kept.glob(f"cache/**/{name}")
    data = file.read_bytes()
    file.write_bytes(data[:size])
    out, told = run(kept, "")
    assert (out, told) == ("5 None", "")
    assert file.stat().st_size > size, "it is kept anew"


PRODUCT = """
import numpy as np
from streamer.model.kernels.arithmetic import multiply
random = np.random.default_rng(0)
w = random.normal(0, .1, 40 * 32).astype(np.float16)
w[:6] = 0, -0.0, 6e-8, -6e-8, 65504, -65504
x, y = random.normal(0, 1, (3, 40)).astype(np.float32), np.zeros((3, 32), np.float32)
multiply(x.ravel(), 40, w.view(np.uint16), 0, 32, 40 * 32, y.ravel(), 32, 3, 40, 1)
"""


@pytest.mark.parametrize("processor", ["generic", "sandybridge"])
def test_a_processor_without_half_floats_computes_the_same_bits(processor, tmp_path):
    """Neither has F16C or FMA: LLVM would call what this process does not have, and abort."""
    here: dict = {}
    exec(PRODUCT, here)
    assert np.allclose(
        here["y"], here["x"] @ here["w"].astype(np.float32).reshape(40, 32), atol=1e-2
    )
    done = subprocess.run(
        [sys.executable, "-c", PRODUCT + "print(y.tobytes().hex())"],
        env=os.environ
        | {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == here["y"].tobytes().hex(), done.stderr


def test_a_compiler_that_is_switched_off_is_one_line():
    done = subprocess.run(
        [STREAMER, "describe", "--quiet", SAMPLE],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "NUMBA_DISABLE_JIT" in done.stderr
