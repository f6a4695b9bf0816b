"""What the README shows is what happens."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from speech import SAMPLES

from streamer.core.attributes import ATTRIBUTES
from streamer.model.card import read_card
from streamer.model.thinker import resolve

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def test_the_first_example_says_what_the_program_says():
    command, sentence = re.search(r"\$ streamer (describe \S+)\n(.+)\n", README).groups()
    done = subprocess.run([sys.executable, "-m", "streamer", *command.split()], capture_output=True, check=True, env=ENVIRONMENT)
    assert done.stdout.decode() == sentence + "\n"


@pytest.mark.parametrize("code", [block for block in BLOCKS if "anyio.run(main)" in block])
def test_the_python_examples_run_as_they_stand(code, tmp_path):
    (tmp_path / "clip.wav").symlink_to(SAMPLES[0])
    root = str(Path(__file__).parent.parent)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=tmp_path, env=ENVIRONMENT | {"PYTHONPATH": root})
    assert done.stderr == b""
    assert "说话人" in done.stdout.decode()


@pytest.mark.parametrize("role", ["edge", "cloud"])
def test_the_table_of_attributes_is_that_of_the_models(role):
    table = re.findall(r"^\| `(\w+)`, [^|]+ \|(.+)\|$", README, re.M)
    shown = {name: [cell.strip().split(" / ") for cell in cells.split("|") if cell.strip()] for name, cells in table}
    attributes = read_card(resolve("embedded", role)).attributes
    assert shown == {name: [level["phrases"] for level in levels] for name, levels in attributes.items()}
    assert tuple(shown) == ATTRIBUTES


def test_there_are_such_examples():
    assert sum("anyio.run(main)" in block for block in BLOCKS) >= 2
