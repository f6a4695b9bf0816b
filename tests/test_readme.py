"""Examples of README.md and docs/ that need their own tests: attributes, TLS."""

import os
import re
import shlex
import subprocess
import sys

import pytest
from documents import block_of
from far import free_port
from places import ROOT
from processes import ended
from speech import SAMPLES

from streamer.core.attributes import ATTRIBUTES, ENGLISH
from streamer.model.checkpoint.card import read_card
from streamer.model.thinker import resolve

ATTRIBUTES_PAGE = (ROOT / "docs/attributes.md").read_text("utf-8")
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("role", ["edge", "cloud"])
def test_the_table_of_attributes_is_that_of_the_models(role):
    table = re.findall(r"^\| `(\w+)`, [^|]+ \|(.+)\|$", ATTRIBUTES_PAGE, re.M)
    shown = {
        name: [cell.strip() for cell in cells.split("|") if cell.strip()] for name, cells in table
    }
    phrases = read_card(resolve("embedded", role)).attributes
    assert shown == {
        name: [
            f"**{level['name']}** {ENGLISH[name][level['name']]}: {' / '.join(level['phrases'])}"
            for level in levels
        ]
        for name, levels in phrases.items()
    }
    assert tuple(shown) == ATTRIBUTES


def test_the_way_over_tls_is_the_way(tmp_path):
    """The lines of docs/link.md; then without the key, and without the authority."""
    block = block_of("docs/link.md", "openssl ").replace("\\\n", "")
    make, verifier, describe = block.replace("8766", str(free_port())).splitlines()
    port = re.search(r"wss://127.0.0.1:(\d+)", describe)[1]
    (tmp_path / "clip.wav").symlink_to(SAMPLES[0])
    command = tmp_path / "streamer"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m streamer "$@"\n')
    command.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    given = {"cwd": tmp_path, "env": ENVIRONMENT | {"PYTHONPATH": str(ROOT), "PATH": path}}

    def run(line):
        done = ended("sh", "-c", line, **given)
        return done.returncode, done.stdout, done.stderr

    assert run(make)[0] == 0
    words = ["sh", "-c", f"exec env {verifier} --port {port}"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(words, **pipes, **given) as far:
        try:
            assert far.stdout.readline().startswith(f"listening on wss://127.0.0.1:{port} ")
            status, out, err = run(describe)
            assert (status, out.count("\n")) == (0, 1), err
            assert out.startswith("说话人")
            status, _, err = run(describe.replace("STREAMER_CLOUD_KEY=secret ", ""))
            assert (status, err.count("\n")) == (1, 1)
            assert "give its key with --cloud-key or STREAMER_CLOUD_KEY" in err
            err = run(describe.replace("SSL_CERT_FILE=chain.pem ", ""))[2]
            assert "name the PEM file of its authority in SSL_CERT_FILE" in err
        finally:
            far.kill()
