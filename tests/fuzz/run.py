"""Fuzz one reader by coverage (atheris): `python tests/fuzz/run.py TARGET [--seconds 600]`.

It begins with the corpus and the new inputs of earlier runs, in .cache/fuzz. A finding is written to
.cache/fuzz/TARGET.found; the exit status is 0 without one.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import subprocess
import sys
from pathlib import Path

import atheris

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT)]
with atheris.instrument_imports(include=["streamer", "tomllib", "json", "targets"]):
    from targets import CORPUS, TARGETS
from mutate import mutate  # noqa: E402

CACHE = ROOT / ".cache" / "fuzz"
WHOLE = 0.7  # of mutations that keep an input's form, where its kind is known
SECONDS_EACH = 20  # for one input: then it hangs


def main() -> int:
    options = _options()
    name = options.target
    if options.inside:
        return _inside(name, options.inside)
    own = CACHE / name
    own.mkdir(parents=True, exist_ok=True)
    for data in TARGETS[name].seeds():
        (own / hashlib.sha1(data).hexdigest()).write_bytes(data)
    found = CACHE / f"{name}.found"
    limits = [f"-max_total_time={options.seconds}", f"-timeout={SECONDS_EACH}", "-max_len=4096"]
    limits += ["-rss_limit_mb=2048", "-print_final_stats=1", f"-exact_artifact_path={found}"]
    # in a process of its own: libFuzzer ends the one that it runs in
    command = [sys.executable, __file__, name, "--inside", *limits, str(own), str(CORPUS / name)]
    return subprocess.run(command, check=False).returncode


def _inside(name: str, words: list[str]) -> int:
    target = TARGETS[name]

    def mutator(data: bytes, max_size: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < WHOLE:
            for _ in range(chance.randint(1, 3)):
                changed = mutate(target.kind, data, chance)
                if changed is None or len(changed) > max_size:
                    break
                data = changed
            else:
                return data
        return bytes(atheris.Mutate(data, max_size))

    atheris.Setup([__file__, *words], target.read, custom_mutator=mutator)
    atheris.Fuzz()
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--inside", nargs=argparse.REMAINDER, default=[], help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
