"""The KV memory of one engine. In: slot numbers and positions. Out: views of keys and values, no copies.

One tensor each for keys and values, [layers, slots, kv_heads, max_len, head_dim]; a slot belongs to one stream
from `acquire` to `release`. Zeros from the start: NaN beyond a row's length would poison masked attention.
"""

from __future__ import annotations

import threading

import torch

from streamer.model.shapes import TextShape


class SlotsFull(RuntimeError):
    """Every KV slot is taken."""


class KVSlots:
    """`keys` and `values` [layers, slots, kv_heads, max_len, head_dim]; bounded by `num_slots` and `max_len`."""

    def __init__(self, shape: TextShape, num_slots: int, max_len: int, dtype: torch.dtype, device: str) -> None:
        size = (shape.layers, num_slots, shape.kv_heads, max_len, shape.head_dim)
        self.keys = torch.zeros(size, dtype=dtype, device=device)
        self.values = torch.zeros(size, dtype=dtype, device=device)
        self.max_len = max_len
        self._free = list(range(num_slots - 1, -1, -1))
        self._taken: set[int] = set()
        self._books = threading.Lock()

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def bytes_per_slot(self) -> int:
        return 2 * self.keys[:, 0].numel() * self.keys.element_size()

    def acquire(self) -> int:
        """Take the lowest free slot. Raises SlotsFull."""
        with self._books:
            if not self._free:
                raise SlotsFull(f"all {len(self._taken)} KV slots are taken; end a stream or raise the number of slots")
            slot = self._free.pop()
            self._taken.add(slot)
            return slot

    def release(self, slot: int) -> None:
        """Give `slot` back. Raises KeyError when it was not taken."""
        with self._books:
            self._taken.remove(slot)
            self._free.append(slot)
            self._free.sort(reverse=True)
