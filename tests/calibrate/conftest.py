"""Real recordings, an edge that may be written to, and the command in this process."""

import shutil

import pytest
import soundfile
import speech

from streamer.cli import main
from streamer.model.thinker import resolve


@pytest.fixture(scope="package")
def clips(tmp_path_factory):
    """Eight real recordings of 2 to 4 s, played a little slow or fast: edge and cloud differ on
    some."""
    folder, files = tmp_path_factory.mktemp("clips"), []
    for seed in range(8):
        soundfile.write(
            folder / f"{seed}.wav", speech.speech(2.0 + seed / 4, seed), (14_000, 21_000)[seed % 2]
        )
        files.append(str(folder / f"{seed}.wav"))
    return files


@pytest.fixture
def edge(tmp_path):
    """A copy of the shipped edge that may be written to."""
    return shutil.copytree(resolve("embedded", "edge"), tmp_path / "edge")


@pytest.fixture
def calibrate(capsys):
    """Runs it: (status, stdout, lines of stderr)."""

    def run(*args):
        try:
            status = main(["calibrate", *map(str, args)])
        except SystemExit as end:  # argparse's way
            status = end.code
        out, err = capsys.readouterr()
        return status, out, err.splitlines()

    return run
