"""The command line in this process, and the pair that it describes with."""

from __future__ import annotations

import pytest

from streamer.cli import main


@pytest.fixture(scope="module")
def models(tiny_pair):
    return ["--edge", tiny_pair[0], "--cloud", tiny_pair[1]]


@pytest.fixture
def here(capsys):
    """Runs a command in this process: (status, stdout, stderr)."""

    def run(*args):
        try:
            status = main([*map(str, args)])
        except SystemExit as end:  # argparse's way
            status = end.code
        return status, *capsys.readouterr()

    return run
