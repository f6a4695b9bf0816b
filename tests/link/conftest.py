"""What the tests of the link share: verifier processes, and what one process says about the bundled recordings."""

import json
import os
import subprocess
import sys

import pytest
from far import verifying
from speech import SAMPLES
from wire import ENVIRONMENT


@pytest.fixture(scope="package")
def verifier():
    """A verifier of the shipped cloud model: its address."""
    with verifying() as (url, _):
        yield url


@pytest.fixture(scope="package")
def wanted():
    """mode -> file name -> what `streamer describe` says in one process."""
    found = {}
    for mode in ("exact", "gated", "edge"):
        command = [sys.executable, "-m", "streamer", "describe", *map(str, SAMPLES), "--json", "--mode", mode]
        rows = subprocess.run(command, capture_output=True, check=True, env=ENVIRONMENT).stdout.decode().splitlines()
        found[mode] = {os.path.basename(json.loads(row)["file"]): json.loads(row) for row in rows}
    return found
