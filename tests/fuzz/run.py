"""Fuzz one reader by coverage; a finding is written to .cache/fuzz/TARGET.found."""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
from pathlib import Path

import atheris

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support"), str(ROOT)]
with atheris.instrument_imports(include=["streamer", "tomllib", "json", "targets"]):
    from targets import CORPUS, TARGETS, mutate

CACHE = ROOT / ".cache" / "fuzz"
WHOLE = 0.7  # of mutations that keep an input's form, where its kind is known
SECONDS_EACH = 20  # for one input: then it hangs


def main() -> None:
    """libFuzzer ends this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=600)
    options = parser.parse_args()
    target, own = TARGETS[options.target], CACHE / options.target
    own.mkdir(parents=True, exist_ok=True)
    for data in target.seeds:
        (own / hashlib.sha1(data).hexdigest()).write_bytes(data)
    found = CACHE / f"{options.target}.found"
    limits = [f"-max_total_time={options.seconds}", f"-timeout={SECONDS_EACH}", "-max_len=4096"]
    limits += ["-rss_limit_mb=2048", "-print_final_stats=1", f"-exact_artifact_path={found}"]

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

    words = [__file__, *limits, str(own), str(CORPUS / options.target)]
    atheris.Setup(words, target.read, custom_mutator=mutator)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
