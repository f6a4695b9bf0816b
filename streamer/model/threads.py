"""How threads share the cores. In: the loaded models' sizes. Out: torch and Python are told.

Measured 2026-11 on 4 cores, the embedded pair, one gated answer: idle 1, 2 and 4 threads take 65, 62 and 66 ms; beside
three busy processes 74, 190 and 1,900 ms, since each of a step's products waits for its slowest thread.
"""

from __future__ import annotations

import os
import sys

import torch

SMALL = 50_000_000  # parameters, up to which a product is too small to be worth a second thread


# A kernel that returns waits for the GIL until a busy thread gives it up: 5 ms by default, more than most kernels take.
# 48 live streams, 2026-11: first text after 60 % of the time.
SWITCH_S = 0.0005


def set_threads(num_params: int) -> None:
    """One thread for small models, torch's own choice for others; OMP_NUM_THREADS in the environment wins."""
    sys.setswitchinterval(min(SWITCH_S, sys.getswitchinterval()))
    if num_params <= SMALL and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
