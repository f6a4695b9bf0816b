"""The page in a wheel."""

import shutil
import subprocess
import sys
import zipfile

from places import ROOT

from streamer.net.realtime.server import PAGE


def test_a_wheel_holds_the_page(tmp_path):
    tree = tmp_path / "tree"
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "streamer", tree / "streamer", ignore=skip)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    command = [*pip, "--no-deps", "--no-build-isolation", "-w", tmp_path, tree]
    subprocess.run(command, check=True, timeout=100)
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {f"streamer/net/page/{file.name}" for file in PAGE.iterdir()} <= held
