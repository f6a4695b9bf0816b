"""Readers of foreign bytes: the corpus again and, in the long run, by coverage (run.py)."""

import random
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from processes import ended
from targets import CORPUS, KINDS, TARGETS, mutate

RUN = Path(__file__).parent / "run.py"


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_and_what_is_nearly_right_is_read_or_refused(name):
    chance, target = random.Random(name), TARGETS[name]
    inputs = [file.read_bytes() for file in sorted((CORPUS / name).iterdir())]
    for data in (*target.seeds, *inputs):
        target.read(data)
    num_whole = 0
    for _ in range(100 if "safetensors" in name or name == "wav" else 300):
        data = chance.choice(target.seeds)
        for _ in range(chance.randint(1, 3)):
            changed = mutate(target.kind, data, chance)
            num_whole += changed is not None
            data = changed or data[: chance.randrange(len(data) + 1)] + chance.randbytes(2)
        target.read(data)
    assert num_whole > 100 or target.kind not in KINDS or "safetensors" in name


@pytest.mark.long
@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not installed: .[fuzz]")
@pytest.mark.parametrize("name", TARGETS)
def test_fuzzed_by_coverage(name, request):
    words = (RUN, name, "--seconds", request.config.getoption("--fuzz-seconds"))
    done = ended(sys.executable, *words, errors="replace", timeout=None)
    assert done.returncode == 0, done.stderr[-4_000:]
