"""stderr cannot be written any more; the work is done all the same."""

import os
import subprocess
import sys

import pytest
from processes import ENVIRONMENT

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")


def streamer(*arguments, **pipes):
    """A command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "streamer", *map(str, arguments)],
        **pipes,
        env=ENVIRONMENT,
        timeout=120,
        check=False,
        text=True,
    )


def test_a_stderr_that_cannot_be_written_costs_no_sentence(samples, tmp_path):
    """Nor does it change the exit status: 1, for the file that is none."""
    with open("/dev/full", "w") as full:
        words = ("describe", "-v", "--mode", "edge", tmp_path / "none.wav", samples[0])
        done = streamer(*words, stdout=subprocess.PIPE, stderr=full)
    assert (done.returncode, len(done.stdout.splitlines())) == (1, 1)


@pytest.mark.parametrize("number", [1, 2])
def test_a_closed_stream_leads_nowhere(samples, number):
    """As `>&-` and `2>&-` close it. What was for the one never comes on the other."""
    words = ("describe", "--mode", "edge", "-v", samples[0])
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    done = streamer(*words, **pipes, preexec_fn=lambda: os.close(number))
    assert done.returncode == 0
    shown = [done.stdout.count("说话人"), done.stderr.count("first text after")]
    assert shown == ([0, 1] if number == 1 else [1, 0])
    assert "defect" not in done.stderr
    assert "first text" not in done.stdout
