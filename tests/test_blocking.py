"""`streamer.describe` in one line: from a script, from a running loop, many at once."""

import os
import pickle
import subprocess
import sys

import pytest
from places import ROOT

import streamer
from streamer.audio.source import AudioError
from streamer.config import Config, ConfigError


@pytest.fixture(scope="module")
def options(tiny_pair):
    return {"mode": "exact", "edge": str(tiny_pair[0]), "cloud": str(tiny_pair[1])}


async def test_one_line_says_what_the_describer_says(options, samples):
    """Also here, where a loop runs already, as in a notebook."""
    found = streamer.describe(samples[0], **options)
    async with streamer.Describer.open(**options) as describer:
        wanted = await describer.describe(samples[0])
    assert (found.ids, found.text, found.file) == (wanted.ids, wanted.text, str(samples[0]))
    assert streamer.describe(samples[0], Config(**options)).ids == wanted.ids


def test_many_keep_their_order_and_one_s_failure(options, samples, tmp_path):
    files = [samples[0], tmp_path / "none.wav", samples[1], samples[0]]
    one, none, two, again = streamer.describe_many(files, jobs=2, **options)
    assert (one.file, two.file) == (str(samples[0]), str(samples[1]))
    assert isinstance(none, AudioError)
    assert again.ids == one.ids == streamer.describe(samples[0], **options).ids


def test_what_cannot_be_done_is_raised(options, tmp_path):
    with pytest.raises(AudioError, match="no such file"):
        streamer.describe(tmp_path / "none.wav", **options)
    with pytest.raises(ConfigError, match="did you mean mode"):
        streamer.describe("a.wav", mdoe="edge")
    with pytest.raises(ConfigError, match="not both"):
        streamer.describe("a.wav", Config(), mode="edge")
    with pytest.raises(ConfigError, match="jobs is 0; it may be 1 to 64"):
        streamer.describe_many(["a.wav"], jobs=0)
    with pytest.raises(streamer.ModelError, match=r"config\.json"):
        streamer.describe("a.wav", edge=str(tmp_path))


def test_every_public_exception_survives_pickling():
    """Else one file that is missing hangs a pool of processes."""
    two = {"AudioError": ("a.wav", "is empty"), "ModelError": ("m", "is none")}
    public = [getattr(streamer, name) for name in streamer.__all__]
    kinds = [p for p in public if isinstance(p, type) and issubclass(p, Exception)]
    assert {"AudioError", "ModelError", "TargetLost"} <= {kind.__name__ for kind in kinds}
    for kind in kinds:
        error = kind(*two.get(kind.__name__, ("one line",)))
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (kind, str(error), vars(error))


def test_a_program_ends_while_a_daemon_thread_describes(options, samples):
    """Also between two calls of it, and while the next models are loaded."""
    code = f"""
import io, streamer, threading
is_read = threading.Semaphore(0)
class File(io.BytesIO):
    def read(self, size=-1):
        is_read.release()
        return super().read(size)
sound, options = open({str(samples[0])!r}, "rb").read(), {options!r}
def work():
    while True:
        for mode in ("exact", "edge"):
            streamer.describe(File(sound), **{{**options, "mode": mode}})
threading.Thread(target=work, daemon=True).start()
for _ in range(6): is_read.acquire()  # twice in each file: its bytes, its end
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_describes_and_ends(options, samples):
    """Such as a process of a pool: the thread that described stays with the first one."""
    code = f"""
import os, sys, streamer
say = lambda: print(streamer.describe({str(samples[0])!r}, **{options!r}).text, flush=True)
say()
for uses in (True, False):
    child = os.fork()
    if child == 0:
        if uses: say()
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0
say()
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 3
    assert len(set(done.stdout.splitlines())) == 1
