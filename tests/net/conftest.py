"""One real server in exact mode for the tests of this room, and what it must say."""

import json
import os
import subprocess
import sys

import pytest
from speech import SAMPLES
from wire import ENVIRONMENT, serving


@pytest.fixture(scope="package")
def server():
    with serving("--mode", "exact", "--resume-s", 5) as (url, _):
        yield url


@pytest.fixture(scope="package")
def wanted():
    """What `streamer describe` says about the bundled recordings, in exact mode, by file name."""
    command = [sys.executable, "-m", "streamer", "describe", *map(str, SAMPLES), "--json", "--mode", "exact"]
    rows = subprocess.run(command, capture_output=True, check=True, env=ENVIRONMENT).stdout.decode().splitlines()
    return {os.path.basename(json.loads(row)["file"]): json.loads(row) for row in rows}
