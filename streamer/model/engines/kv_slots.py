"""The KV memory of one engine. In: slots and positions. Out: views of keys and values, no copies.

One array each for keys and values, [layers, slots, kv_heads, max_len, head_dim], NumPy's or
torch's; for the compiled kernels the keys lie in panels of positions and sizes are padded. A slot
belongs to one stream from `acquire` to `release`. Zeros from the start: NaN beyond a row's length
would poison masked attention.
"""

from __future__ import annotations

import threading
from typing import Any

from streamer.model.checkpoint.shapes import TextShape


class SlotsFull(RuntimeError):
    """Every KV slot is taken."""


class KVSlots:
    """Books of who has which slot; bounded by `num_slots` and `max_len`.

    keys, values: arrays of zeros whose sizes `kv_sizes` gives, the same `panel`. Slots behind the
    first `num_slots` are nobody's.
    """

    def __init__(
        self, keys: Any, values: Any, num_slots: int, max_len: int, panel: int = 1
    ) -> None:
        self.keys = keys
        self.values = values
        self.num_slots = num_slots
        self.max_len = max_len
        self.spare = num_slots  # the first slot that is nobody's, where there are some
        self._panel = panel
        self._free = list(range(num_slots - 1, -1, -1))
        self._taken: set[int] = set()
        self._books = threading.Lock()

    @property
    def num_free(self) -> int:
        return len(self._free)

    def beginning(self, slot: int, n: int) -> tuple[Any, Any]:
        """Views of keys and values of the first `n` positions of `slot`, or of their panels."""
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


def kv_sizes(
    shape: TextShape, num_slots: int, max_len: int, panel: int = 1
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes of keys and values.

    panel: where not 1, max_len and the values' head_dim are padded to multiples of it, and keys are
    [layers, slots, kv_heads, max_len / panel, head_dim, panel].
    """
    outer = (shape.layers, num_slots, shape.kv_heads)
    length, dim = (-(-size // panel) * panel for size in (max_len, shape.head_dim))
    inner = (length // panel, shape.head_dim, panel) if panel > 1 else (length, dim)
    return (*outer, *inner), (*outer, length, dim)
