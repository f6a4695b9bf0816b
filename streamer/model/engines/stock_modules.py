"""transformers' own modules over the same files. In: a model directory. Out: the stock thinker, for
oracles.

Slow to import and to run; the `generate` drafter, the tests and the benches use it, nothing else
does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


def load_stock(directory: Path, dtype: torch.dtype = torch.float32) -> Any:
    """`Qwen2_5OmniThinkerForConditionalGeneration` in evaluation mode, weights in `dtype`."""
    from transformers import Qwen2_5OmniThinkerForConditionalGeneration as Stock

    return Stock.from_pretrained(directory, dtype=dtype).eval()
