"""How many threads torch may use inside one operation. In: the loaded models' sizes. Out: torch is told.

Measured 2026-11 on 4 cores, the embedded pair, one gated answer: idle 1, 2 and 4 threads take 65, 62 and 66 ms; beside
three busy processes 74, 190 and 1,900 ms, since each of a step's products waits for its slowest thread.
"""

from __future__ import annotations

import os

import torch

SMALL = 50_000_000  # parameters, up to which a product is too small to be worth a second thread


def set_threads(num_params: int) -> None:
    """One thread for small models, torch's own choice for others; OMP_NUM_THREADS in the environment wins."""
    if num_params <= SMALL and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
