"""The KV memory of one engine. In: slot numbers and positions. Out: views of keys and values, no
copies.

One tensor each for keys and values, [layers, slots, kv_heads, max_len, head_dim]; for the compiled
kernels the keys lie in panels of positions and sizes are padded. A slot belongs to one stream from
`acquire` to `release`. Zeros from the start: NaN beyond a row's length would poison masked
attention.
"""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from streamer.model.checkpoint.shapes import TextShape


class SlotsFull(RuntimeError):
    """Every KV slot is taken."""


class KVSlots:
    """`keys` and `values` [layers, slots, kv_heads, max_len, head_dim]; bounded by `num_slots` and
    `max_len`.

    panel: where not 0, max_len and the values' head_dim are padded to multiples of it, and keys are
    [layers, slots, kv_heads, max_len / panel, head_dim, panel]. num_spare: slots behind the others
    that no stream gets.
    """

    def __init__(
        self,
        shape: TextShape,
        num_slots: int,
        max_len: int,
        dtype: torch.dtype,
        device: str,
        panel: int = 0,
        num_spare: int = 0,
    ) -> None:
        outer = (shape.layers, num_slots + num_spare, shape.kv_heads)
        length, dim = (
            -(-size // (panel or 1)) * (panel or 1) for size in (max_len, shape.head_dim)
        )
        inner = (length // panel, shape.head_dim, panel) if panel else (length, dim)
        self._panel = panel or 1
        self.keys = torch.zeros((*outer, *inner), dtype=dtype, device=device)
        self.values = torch.zeros((*outer, length, dim), dtype=dtype, device=device)
        self.num_slots = num_slots
        self.max_len = max_len
        self.spare = num_slots  # the first slot that is nobody's, where there are some
        # for the kernels
        self.arrays = tuple(part.numpy() for part in (self.keys, self.values) if panel)
        self._free = list(range(num_slots - 1, -1, -1))
        self._taken: set[int] = set()
        self._books = threading.Lock()

    @property
    def num_free(self) -> int:
        return len(self._free)

    def beginning(self, slot: int, n: int) -> tuple[Tensor, Tensor]:
        """Views of the first `n` positions of `slot`, or of the panels that hold them: keys,
        values."""
        return self.keys[:, slot, :, : -(-n // self._panel)], self.values[:, slot, :, :n]

    def acquire(self) -> int:
        """Take the lowest free slot. Raises SlotsFull."""
        with self._books:
            if not self._free:
                raise SlotsFull(
                    f"all {len(self._taken)} KV slots are taken; end a stream or raise the number "
                    "of slots"
                )
            slot = self._free.pop()
            self._taken.add(slot)
            return slot

    def release(self, slot: int) -> None:
        """Give `slot` back. Raises KeyError when it was not taken."""
        with self._books:
            self._taken.remove(slot)
            self._free.append(slot)
            self._free.sort(reverse=True)
