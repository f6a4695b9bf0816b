"""One model's step. In: rows (a KV slot, new ids or embeddings). Out: logits where asked for.

Draft, verify and prefill are one operation: feed row i its n_i new positions. Nothing else writes
to the KV slots. The model's functions come from outside: torch (load.py) or the
compiled kernels (model/kernels/models.py). It keeps its own kind of array,
NumPy's or torch's; logits are NumPy's always.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.model.checkpoint.layout import ZEROS, AudioShape, TextShape


def rotary(length: int, head_dim: int, theta: float) -> tuple[Floats, Floats]:
    """cos and sin [length, head_dim / 2] of every position's angles (arXiv 2104.09864).

    The angles are rounded to float32 where transformers rounds them: at position 1,500 a rounder
    one would be another angle.
    """
    exponents = (np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)).astype(float)
    inverse = np.float32(1.0) / (theta**exponents).astype(np.float32)
    angle = np.arange(length, dtype=np.float32)[:, None] * inverse
    cos, sin = (each(angle, dtype=np.float64).astype(np.float32) for each in (np.cos, np.sin))
    return cos, sin


def sinusoids(length: int, channels: int) -> Floats:
    """[length, channels]: sines, then cosines, as in whisper's encoder; no checkpoint has them."""
    step = math.log(10_000) / (channels // 2 - 1)
    angle = np.arange(length)[:, None] * np.exp(-step * np.arange(channels // 2))
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1).astype(np.float32)


class SlotsFull(RuntimeError):
    """Every KV slot is taken."""


class KVSlots:
    """The slots that streams hold; bounded by `num_slots` and `max_len`.

    values: [layers, slots, kv_heads, max_len, head_dim]; keys: the same. panel: where not 1,
    max_len and the values' head_dim are padded to multiples of it, and keys are [layers, slots,
    kv_heads, max_len / panel, head_dim, panel].
    """

    def __init__(
        self,
        shape: TextShape,
        num_slots: int,
        max_len: int,
        zeros: Callable[[tuple[int, ...]], Any],
        angles: tuple[Any, Any],
        panel: int = 1,
    ) -> None:
        """zeros: makes an array of a size; angles: what `rotary` gives for `max_len` positions."""
        outer = shape.layers, num_slots, shape.kv_heads
        length, dim = (-(-size // panel) * panel for size in (max_len, shape.head_dim))
        inner = (length // panel, shape.head_dim, panel) if panel > 1 else (length, dim)
        self.keys, self.values = zeros((*outer, *inner)), zeros((*outer, length, dim))
        self.angles = angles
        self.num_slots = num_slots
        self.max_len = max_len
        self.panel = panel


Floats = NDArray[np.float32]
# embeddings [m, hidden] that stand in for packed rows from a first one on
Audio = Seq[tuple[int, Any]]


class Span(NamedTuple):
    """Where one row's new positions lie: packed rows [first, first + n) go to `slot` at `start`.

    num_logits: of how many of its last positions logits are wanted.
    """

    slot: int
    start: int
    first: int
    n: int
    num_logits: int = 0


class Text(Protocol):
    """The language model: `step` gives logits [sum of num_logits, vocab] float32 of packed ids."""

    shape: TextShape

    def slots(self, num_slots: int, max_len: int) -> KVSlots: ...
    def step(self, ids: Seq[int], audio: Audio, spans: Seq[Span], slots: KVSlots) -> Floats: ...


class Tower(Protocol):
    """The audio tower: windows of log-mel [B, mels, T] float32 -> embeddings [B, n, hidden]."""

    windows_at_once: int  # worth encoding together

    def encode(self, features: Floats) -> Any: ...


def joined(parts: Seq[Any]) -> Any:
    """The parts joined, arrays of either kind."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import torch  # it is loaded: the parts are its own

    return torch.cat(list(parts))


def arrays_of(
    take: Callable[[str], Any], shape: TextShape | AudioShape, i: int
) -> Iterator[tuple[str, Any]]:
    """(name, array) of layer i as engines hold it, of either kind. take: a tensor by its name."""
    for field, names in shape.layer().items():
        parts: list[Any] = []
        for name in names:
            whole = f"{shape.prefix}layers.{i}.{name}"
            parts.append(abs(0 * parts[-1]) if name == ZEROS else take(whole))
        yield field, joined(parts)


class Row(NamedTuple):
    """Feed `ids` to `slot` from position `start` on; logits of the last `num_logits` positions come
    back.

    embeds [m, hidden]: stand in for the embeddings of the first m ids (audio placeholders).
    """

    slot: int
    start: int
    ids: Seq[int]
    embeds: Any = None
    num_logits: int = 1


class Engine:
    """Owns the KV slots of one model. A slot starts with the prompt's keys and values, computed
    once.

    Threads may share it: steps run one at a time, slots are opened and closed at any time.
    """

    def __init__(self, text: Text, slots: KVSlots, prompt_ids: Seq[int], tower: Tower) -> None:
        self.text = text
        self.slots = slots
        self.prompt_ids = tuple(prompt_ids)
        self.tower = tower
        self._free = set(range(slots.num_slots))
        self._lock = threading.Lock()
        self._one_step = threading.Lock()
        self.step([Row(0, 0, self.prompt_ids, num_logits=0)])
        # a product is a copy, of either kind of array
        self._prompt = [1 * part for part in self._beginning(0)]

    @property
    def num_free(self) -> int:
        """How many slots are free."""
        return len(self._free)

    def _beginning(self, slot: int) -> tuple[Any, Any]:
        """Views of the prompt's keys and values, or of their panels, in `slot`."""
        n, at = len(self.prompt_ids), self.slots
        return at.keys[:, slot, :, : -(-n // at.panel)], at.values[:, slot, :, :n]

    def open(self) -> int:
        """The lowest free slot, which holds the prompt already. The caller must `close` it. Raises
        SlotsFull."""
        with self._lock:
            if not self._free:
                told = f"all {self.slots.num_slots} KV slots are taken"
                raise SlotsFull(f"{told}; end a stream or raise the number of slots")
            slot = min(self._free)
            self._free.remove(slot)
        for part, kept in zip(self._beginning(slot), self._prompt, strict=True):
            part[...] = kept
        return slot

    def close(self, slot: int) -> None:
        """Give the slot back. Raises KeyError when it was not taken."""
        with self._lock:
            if slot in self._free:
                raise KeyError(slot)
            self._free.add(slot)

    def encode(self, features: Floats) -> Any:
        """Embeddings [B, n, hidden] of [B, mels, T]."""
        return self.tower.encode(features)

    def step(self, rows: Seq[Row]) -> list[Floats]:
        """Per row logits [num_logits, vocab] float32.

        No slot stands in two rows, and no row is empty. Raises ValueError for one beyond its slot's
        end.
        """
        ids: list[int] = []
        audio, spans = [], []
        for row in rows:
            n = len(row.ids)
            if row.start + n > self.slots.max_len:
                told = f"position {row.start + n} is beyond the slot's {self.slots.max_len}"
                raise ValueError(told)
            if row.embeds is not None:
                audio.append((len(ids), row.embeds))
            spans.append(Span(row.slot, row.start, len(ids), n, row.num_logits))
            ids += row.ids
        with self._one_step:
            logits = self.text.step(ids, audio, spans, self.slots)
        ends = accumulate(row.num_logits for row in rows)
        return [logits[end - row.num_logits : end] for row, end in zip(rows, ends, strict=True)]
