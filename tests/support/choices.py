"""A small vocabulary with every kind of token, and logits over it."""

from __future__ import annotations

import numpy as np

from streamer.core.rules.settings import Sampling
from streamer.core.text.vocabulary import Vocabulary

TOKENS = [
    *("音", "色", "中", "，", "慢", "。", "、", "，请", "语速", "a", "\n", "Human", "微"),
    "音色",
]
DATA = [*(t.encode() for t in TOKENS), b"\xe9\xbe", b"\x98", b"\x99", b"<eos>"]
EOS = len(DATA) - 1
VOCABULARY = Vocabulary.build(DATA, [EOS], [EOS], len(DATA) + 2)
V = VOCABULARY.num_ids
GREEDY = Sampling()


def logits_of(seed: int, rows: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, V), np.float32) * 4
