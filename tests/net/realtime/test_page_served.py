"""The page as files: their headers, and that a wheel holds them."""

import json
import shutil
import subprocess
import sys
import zipfile
from urllib.request import urlopen

from patience import PATIENCE_S
from places import ROOT
from wire import http

from streamer.net.realtime.server import PAGE


def test_the_page_s_files_are_served_with_their_policy(server):
    """As often as asked; no other files."""
    home = server.replace("ws", "http", 1).removesuffix("v1/realtime")
    for _ in range(3):
        with urlopen(home, timeout=PATIENCE_S) as answer:
            assert answer.headers.get_all("Server") == ["streamer"]
            (policy,) = answer.headers.get_all("Content-Security-Policy")
            assert policy.startswith("default-src 'none'; script-src 'self';")
            assert b"<title>" in answer.read()
    levels = json.loads(http(server, "/attributes.json")[1])["rate"]
    assert [level["name"] for level in levels] == ["很慢", "偏慢", "适中", "偏快", "很快"]
    found = [http(server, path)[0] for path in ("/app.js", "/../server.py", "/server.py")]
    assert found == [200, 404, 404]


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
