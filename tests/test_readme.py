"""What the README shows is what happens."""

import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
import soundfile
from far import free_port
from places import ROOT
from speech import SAMPLES

from streamer.core.attributes import ATTRIBUTES, with_english
from streamer.model.checkpoint.card import read_card
from streamer.model.thinker import resolve

README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def test_the_first_example_says_what_the_program_says():
    command, sentence = re.search(r"\$ streamer (describe \S+)\n(.+)\n", README).groups()
    done = subprocess.run(
        [sys.executable, "-m", "streamer", *command.split()],
        capture_output=True,
        check=True,
        env=ENVIRONMENT,
    )
    assert done.stdout.decode() == sentence + "\n"


@pytest.mark.parametrize("code", [block for block in BLOCKS if "anyio.run(main)" in block])
def test_the_python_examples_run_as_they_stand(code, tmp_path):
    (tmp_path / "clip.wav").symlink_to(SAMPLES[0])
    root = str(ROOT)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        cwd=tmp_path,
        env=ENVIRONMENT | {"PYTHONPATH": root},
    )
    assert done.stderr == b""
    assert "说话人" in done.stdout.decode()


def test_the_live_example_takes_a_file_s_own_rate_and_one_channel(tmp_path):
    """The same sound in stereo is the same to it; declared at half the rate it is another."""
    (code,) = [block for block in BLOCKS if "d.session(" in block]
    root, told = str(ROOT), []
    samples, _ = soundfile.read(SAMPLES[0], dtype="int16")
    for channels, rate in ((1, 16_000), (2, 16_000), (1, 8_000)):
        soundfile.write(tmp_path / "clip.wav", np.stack([samples] * channels, 1), rate)
        env = ENVIRONMENT | {"PYTHONPATH": root}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, cwd=tmp_path, env=env, check=True
        )
        # a live update may be left out in a hurry
        told.append(done.stdout.decode().splitlines()[-1])
    assert told[0] == told[1] != told[2]


@pytest.mark.parametrize("role", ["edge", "cloud"])
def test_the_table_of_attributes_is_that_of_the_models(role):
    table = re.findall(r"^\| `(\w+)`, [^|]+ \|(.+)\|$", README, re.M)
    shown = {
        name: [cell.strip() for cell in cells.split("|") if cell.strip()] for name, cells in table
    }
    attributes = with_english(read_card(resolve("embedded", role)).attributes)
    assert shown == {
        name: [
            f"**{level['name']}** {level['english']}: {' / '.join(level['phrases'])}"
            for level in levels
        ]
        for name, levels in attributes.items()
    }
    assert all(level["english"] for levels in attributes.values() for level in levels)
    assert tuple(shown) == ATTRIBUTES


def test_there_are_such_examples():
    assert sum("anyio.run(main)" in block for block in BLOCKS) >= 2


def test_the_way_over_tls_is_the_way(tmp_path):
    """The README's lines as they stand, but for the port and a sample in the place of clip.wav;
    then without the key."""
    block = re.search(r"^```\n(openssl .*?)^```", README, re.S | re.M)[1].replace("\\\n", "")
    make, verifier, describe = block.replace("8766", str(free_port())).splitlines()
    port = re.search(r"wss://127.0.0.1:(\d+)", describe)[1]
    (tmp_path / "clip.wav").symlink_to(SAMPLES[0])
    (tmp_path / "streamer").write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m streamer "$@"\n'
    )
    (tmp_path / "streamer").chmod(0o755)
    root = str(ROOT)
    given = ENVIRONMENT | {"PYTHONPATH": root, "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def run(line):
        return subprocess.run(
            ["sh", "-c", line], capture_output=True, text=True, cwd=tmp_path, env=given, timeout=120
        )

    assert run(make).returncode == 0
    words = f"exec env {verifier} --port {port}"
    with subprocess.Popen(
        ["sh", "-c", words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
        env=given,
    ) as far:
        try:
            assert far.stdout.readline().startswith(f"listening on wss://127.0.0.1:{port} ")
            done = run(describe)
            assert (done.returncode, done.stdout.count("\n")) == (0, 1), done.stderr
            assert done.stdout.startswith("说话人")
            done = run(describe.replace("STREAMER_CLOUD_KEY=secret ", ""))
            assert (done.returncode, done.stderr.count("\n")) == (1, 1)
            assert "give its key with --cloud-key or STREAMER_CLOUD_KEY" in done.stderr
            done = run(describe.replace(" --cloud-ca chain.pem", ""))
            assert "name the PEM file of its authority with --cloud-ca" in done.stderr
        finally:
            far.kill()
