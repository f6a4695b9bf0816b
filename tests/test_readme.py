"""Examples of README.md and docs/ that need their own tests: live audio, attributes, TLS."""

import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
import soundfile
from documents import block_of, blocks
from far import free_port
from places import ROOT
from processes import ended, python
from speech import SAMPLES

from streamer.core.attributes import ATTRIBUTES, ENGLISH
from streamer.model.checkpoint.card import read_card
from streamer.model.thinker import resolve

ATTRIBUTES_PAGE = (ROOT / "docs/attributes.md").read_text("utf-8")
LIVE = [block.code for block in blocks("python") if "d.session(" in block.code]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("code", LIVE)
def test_the_live_examples_take_a_file_s_own_rate_and_one_channel(code, tmp_path):
    """The same sound in stereo is the same to it; declared at half the rate it is another."""
    samples, _ = soundfile.read(SAMPLES[0], dtype="int16")
    for i, (channels, rate) in enumerate(((1, 16_000), (2, 16_000), (1, 8_000))):
        (tmp_path / str(i) / "samples").mkdir(parents=True)
        for name in ("clip.wav", "samples/plain.wav"):
            soundfile.write(tmp_path / str(i) / name, np.stack([samples] * channels, 1), rate)
    # one process for all three: a process that starts costs as much as a sentence
    run = f"import os\nfor i in '012':\n    os.chdir(i)\n    exec({code!r}, {{}})\n"
    run += "    os.chdir('..')\n    print('END', flush=True)"
    out = python(run, cwd=tmp_path, env=ENVIRONMENT | {"PYTHONPATH": str(ROOT)})
    # a live update may be left out in a hurry
    told = [each.splitlines()[-1] for each in out.split("END\n")[:3]]
    assert told[0] == told[1] != told[2]


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
    """The lines of docs/link.md as they stand, but for the port and a sample in the place of
    clip.wav; then without the key, and without the authority."""
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
