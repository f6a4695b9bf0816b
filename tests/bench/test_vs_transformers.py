"""bench.vs_transformers: its arms run and write whole sentences."""

import numpy as np
import soundfile
import torch
from speech import SAMPLES

from bench.vs_transformers import BASES, MODES, make_arms


def test_its_arms_run():
    samples, rate = soundfile.read(SAMPLES[0], dtype="float32")
    assert rate == 16_000
    threads = torch.get_num_threads()
    chosen = [MODES[0]]
    try:
        found = {name: arm(np.array(samples)) for name, arm in make_arms(1, chosen).items()}
    finally:
        torch.set_num_threads(threads)
    assert found.keys() == {*BASES, *chosen}
    for name, timing in found.items():
        assert 0 < timing.first_s <= timing.total_s, name
        assert timing.num_ids > 5, name
