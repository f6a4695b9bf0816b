"""A checkpoint's tensors, one at a time. In: a directory and a name. Out: the tensor, checked.

Nothing of a file stays mapped between two tensors: its pages would count as this process's memory.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from streamer.model.checkpoint.weights import not_finite, unreadable, wanted_name, weight_files

ELEMENTS_AT_ONCE = 1 << 20


class Tensors:
    """By their transformers 4.x names. Raises ModelError for what cannot be read."""

    def __init__(self, directory: Path) -> None:
        self._at: dict[str, tuple[Path, str]] = {}
        for file in weight_files(directory):
            try:
                with safe_open(file, framework="pt") as shard:
                    names = list(shard.keys())
            except (SafetensorError, OSError) as error:
                raise unreadable(file, error) from None
            self._at |= {known: (file, name) for name in names if (known := wanted_name(name))}

    @property
    def names(self) -> list[str]:
        return list(self._at)

    def take(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """A copy, in `dtype` or as it is stored. Raises ModelError, also where it is not finite."""
        file, there = self._at[name]
        try:
            with safe_open(file, framework="pt") as shard:
                stored = shard.get_tensor(there)
                found: Tensor = stored.to(dtype or stored.dtype, copy=True)
        except (SafetensorError, OSError) as error:
            raise unreadable(file, error) from None
        # by parts: a sum in float32 of a tensor in bfloat16 would copy all of it
        for part in found.flatten().split(ELEMENTS_AT_ONCE):
            if not torch.isfinite(part.sum(dtype=torch.float32)):
                raise not_finite(file, there)
        return found
