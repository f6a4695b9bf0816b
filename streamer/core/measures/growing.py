"""An array that grows at its end. In: values. Out: all of them so far, as one array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class Growing:
    """[n, *shape] of one dtype; appending costs constant time per value on average."""

    def __init__(self, *shape: int, dtype: DTypeLike = np.float32) -> None:
        self._held = np.zeros((256, *shape), dtype)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, values: NDArray[Any]) -> None:
        end = self._size + len(values)
        if end > len(self._held):
            num = max(end, 2 * len(self._held))
            room = np.zeros((num, *self._held.shape[1:]), self._held.dtype)
            room[: self._size] = self._held[: self._size]
            self._held = room
        self._held[self._size : end] = values
        self._size = end

    def drop(self, num: int) -> None:
        """Forget the first `num`; so many there must be."""
        self._held = self._held[num : max(self._size, num + 1)].copy()
        self._size -= num

    @property
    def values(self) -> NDArray[Any]:
        """A view: what is appended later does not change it."""
        return self._held[: self._size]
