"""What all tests share: tiny random thinkers in the published layout, and speech to describe."""

import fcntl
import gc
import signal
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# helpers, the readers that are fuzzed, and `pipelines`, which is not installed
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "fuzz"), str(ROOT)]

import hypothesis  # noqa: E402


def pytest_configure(config):
    """Properties without a count try 30 examples, 100 in the long run; kernels may compile."""
    num = 30 if "not long" in config.option.markexpr else 100
    hypothesis.settings.register_profile("streamer", deadline=None, max_examples=num)
    hypothesis.settings.load_profile("streamer")
    # A script's background jobs ignore it, and so would all that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Imported modules live to the end: leave them out of garbage collections, which took 4 s."""
    gc.disable()
    found = yield
    gc.freeze()
    gc.enable()
    if torch := sys.modules.get("torch"):  # what needs none waits for none
        torch.set_num_threads(1)
    return found


def pytest_addoption(parser):
    parser.addoption(
        "--fuzz-seconds", type=int, default=600, help="of each fuzzed reader, in the long run"
    )


@pytest.fixture(scope="session")
def tiny_pair(tmp_path_factory):
    """(edge, cloud) of random thinkers with one tokenizer; one process compiles their kernels."""
    import tiny

    from streamer.model.decoding import warm_up
    from streamer.model.thinker import load

    home = tmp_path_factory.mktemp("models")
    pair = tiny.save_tiny(home / "edge", 1), tiny.save_tiny(home / "cloud", 3, seed_size=2)
    with open(tmp_path_factory.getbasetemp().parent / "kernels", "w") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        warm_up(load(str(pair[0]), "edge"))
    return pair


@pytest.fixture(scope="session")
def tiny_models(tiny_pair):
    """The same as keywords of a describer."""
    return dict(zip(("edge", "cloud"), map(str, tiny_pair), strict=True))


@pytest.fixture(scope="session")
def samples():
    """The bundled recordings, sorted by name."""
    return sorted((ROOT / "samples").glob("*.wav"))
