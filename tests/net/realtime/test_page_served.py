"""The page as files: what is served, with which headers, and what a wheel holds."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from urllib.request import urlopen

from patience import PATIENCE_S
from places import ROOT
from wire import http

from streamer.net.realtime.server import PAGE


def test_pages_are_served_as_often_as_asked_with_their_policy(server):
    """The same headers each time; nothing but the page's own files, and the model's levels."""
    for _ in range(3):
        with urlopen(
            server.replace("ws", "http", 1).removesuffix("v1/realtime"), timeout=PATIENCE_S
        ) as answer:
            assert answer.headers.get_all("Server") == ["streamer"]
            (policy,) = answer.headers.get_all("Content-Security-Policy")
            assert policy.startswith("default-src 'none'; script-src 'self';")
            assert b"<title>" in answer.read()
    levels = json.loads(http(server, "/attributes.json")[1])
    assert [level["name"] for level in levels["rate"]] == ["很慢", "偏慢", "适中", "偏快", "很快"]
    assert [http(server, path)[0] for path in ("/app.js", "/../server.py", "/server.py")] == [
        200,
        404,
        404,
    ]


def test_the_page_has_no_jargon():
    for file in [*PAGE.glob("*.js"), *PAGE.glob("*.html")]:
        assert not re.search(r"TTFT|\bITL\b|prefill", file.read_text("utf-8")), file.name


def test_a_wheel_holds_the_page(tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(
        ROOT / "streamer", tree / "streamer", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-build-isolation",  # torch brings setuptools
        "-w",
        tmp_path,
        tree,
    ]
    subprocess.run(command, check=True, timeout=100)
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {f"streamer/net/page/{file.name}" for file in PAGE.iterdir()} <= held
