"""One model's step. In: rows (a KV slot, new ids or embeddings). Out: logits where asked for.

Draft, verify and prefill are one operation: feed row i its n_i new positions. Nothing else writes
to the KV slots. The model's functions are torch's (load.py) or, for a small model on a CPU, the
compiled kernels' (below). It keeps its own kind of array, NumPy's or torch's; logits are NumPy's
always.

The kernels equal torch to 1e-5, the language model in a tenth of its time at one row, since nothing
is dispatched (2026-11). A checkpoint's float16 stays float16: half the memory is read, and the bits
are the same. A window's embeddings are the same bits in any batch.
"""

from __future__ import annotations

import math
import mmap
import threading
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.model.checkpoint.weights import EMBEDDING, ZEROS, AudioShape, TextShape
from streamer.model.kernels.library import BLOCK, PANEL, QUERIES, kernel, panels


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
# One row's slot and first position there, its first packed embedding, its number of positions, and
# of how many of the last of them logits are wanted.
Span = tuple[int, int, int, int, int]
# The language model: FastText, or TextModel of load.py. `slots` makes KV memory, `embed` packs the
# embeddings of ids, and `step` feeds them: logits [sum of num_logits, vocab] float32.
Text = Any
# The audio tower: FastTower, or AudioTower of load.py. `encode` gives embeddings [B, n, hidden] of
# windows of log-mel [B, mels, T] float32, of which `windows_at_once` are worth encoding together.
Tower = Any


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
        RuntimeError where all are taken."""
        with self._lock:
            if not self._free:
                told = f"all {self.slots.num_slots} KV slots are taken"
                raise RuntimeError(f"{told}; end a stream or raise the number of slots")
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

    def step(self, rows: Seq[Row]) -> list[Floats]:
        """Per row logits [num_logits, vocab] float32.

        No slot stands in two rows, and no row is empty. Raises ValueError for one beyond its slot's
        end, IndexError for an id that the model does not have.
        """
        x = self.text.embed([token for row in rows for token in row.ids])
        spans, first = [], 0
        for slot, start, ids, embeds, num_logits in rows:
            if start + len(ids) > self.slots.max_len:
                told = f"position {start + len(ids)} is beyond the slot's {self.slots.max_len}"
                raise ValueError(told)
            if embeds is not None:
                x[first : first + len(embeds), : embeds.shape[1]] = embeds
            spans.append((slot, start, first, len(ids), num_logits))
            first += len(ids)
        with self._one_step:
            logits = self.text.step(x, spans, self.slots)
        ends = accumulate(row.num_logits for row in rows)
        return [logits[end - row.num_logits : end] for row, end in zip(rows, ends, strict=True)]


def small_pages(size: Seq[int]) -> Floats:
    """Zeros in the system's own pages. NumPy asks for pages of 2 MB: there the first use of a slot
    of the shipped pair took 20 ms and 8 MB, nine tenths of which are never written (2026-11)."""
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return np.frombuffer(mmap.mmap(-1, 4 * math.prod(size), private), np.float32).reshape(size)


def compiled_slots(model: Any, num_slots: int, max_len: int) -> KVSlots:
    """KV memory in float32, as the compiled attention reads it; `slots` of models on kernels."""
    angles = rotary(max_len, model.shape.head_dim, model.shape.rope_theta)
    return KVSlots(model.shape, num_slots, max_len, small_pages, angles, PANEL)


class FastText:
    """Weights in panels; `step` feeds any number of rows. Threads may share it."""

    slots = compiled_slots

    def __init__(self, weights: Mapping[str, Any], shape: TextShape) -> None:
        """weights: arrays by their names in the checkpoint, all float16 or all float32."""
        self.shape = shape
        embedding = np.asarray(weights[EMBEDDING])
        head = embedding if shape.tied else np.asarray(weights["lm_head.weight"])
        norm = padded(weights["model.norm.weight"])
        self._embedding = embedding.astype(np.float32, copy=False)
        self._tables = *tables_of(weights, shape), norm, panels(head)
        self._run = kernel(f"text {self._tables[0].dtype}")

    def embed(self, ids: Seq[int]) -> Floats:
        """[n, padded hidden] of `ids`."""
        x = np.zeros((len(ids), up(self.shape.hidden)), np.float32)
        x[:, : self.shape.hidden] = self._embedding.take(ids, 0)
        return x

    def step(self, x: Floats, spans: Seq[Span], slots: KVSlots) -> Floats:
        """Feed packed embeddings `x`, which change; logits [sum of num_logits, vocab] float32.

        A row's result is the same to the last bit whatever rows stand beside it and however its ids
        are cut.
        """
        s, (n, wide) = self.shape, x.shape
        inner, columns = s.heads * s.head_dim, up(s.vocab)
        widest = max(up(inner + 2 * s.kv_heads * s.head_dim), up(2 * s.ffn))
        queries = max(min(n, QUERIES), s.heads // s.kv_heads) * (BLOCK + up(s.head_dim) + PANEL)
        work = [
            np.zeros(num, np.float32) for num in (n * max(wide, inner, s.ffn), n * widest, queries)
        ]
        logits = np.empty((sum(span[-1] for span in spans), columns), np.float32)
        sizes = s.layers, s.heads, s.kv_heads, s.head_dim, s.hidden, s.ffn, slots.values.shape[3]
        given = np.array(spans), np.array([*sizes, columns]), np.array([s.eps], np.float32)
        kept = [array.reshape(s.layers, -1) for array in (slots.keys, slots.values)]
        rest = *slots.angles, *kept, x.reshape(-1), *work, logits.reshape(-1)
        self._run(*given, *self._tables, *rest)
        return logits[:, : s.vocab]


def tables_of(
    weights: Mapping[str, Any], shape: TextShape | AudioShape
) -> tuple[NDArray[Any], Floats]:
    """The matrices of each layer in panels, one after another, and its vectors."""
    matrices, vectors = [], []
    for i in range(shape.layers):
        own = [np.asarray(array) for _, array in arrays_of(weights.__getitem__, shape, i)]
        matrices.append(np.concatenate([panels(each) for each in own if each.ndim > 1]))
        vectors.append(np.concatenate([padded(each) for each in own if each.ndim == 1]))
    return np.stack(matrices), np.stack(vectors)


def padded(vector: Any) -> Floats:
    """The vector as float32, with zeros after it up to a whole panel."""
    return np.pad(np.asarray(vector, np.float32), (0, -len(vector) % PANEL))


def up(width: int) -> int:
    """`width`, rounded up to whole panels."""
    return -(-width // PANEL) * PANEL


class FastTower:
    """`encode` gives 25 embeddings per second of audio. Threads may share it."""

    # each is a product large enough: together they take as long as one after the other
    windows_at_once = 1

    def __init__(self, weights: Mapping[str, Any], shape: AudioShape) -> None:
        """weights: arrays by their names in the checkpoint, all float16 or all float32."""
        self.shape = shape
        own = {name.removeprefix(shape.prefix): np.asarray(weights[name]) for name in shape.ends()}
        outer = np.concatenate([panels(own[f"{n}.weight"]) for n in ("conv1", "conv2", "proj")])
        names = "conv1.bias", "conv2.bias", "ln_post.weight", "ln_post.bias", "proj.bias"
        ends = np.concatenate([padded(own[name]) for name in names])
        places = np.concatenate([padded(row) for row in sinusoids(shape.n_window, shape.width)])
        self._tables = outer, *tables_of(weights, shape), ends, places
        self._run = kernel(f"tower {outer.dtype}")

    def encode(self, features: Floats) -> Floats:
        """[B, mels, T] float32 -> [B, n, output]. Raises ValueError for more than a window."""
        s = self.shape
        batch, mels, frames = features.shape
        if frames > 2 * s.n_window:
            raise ValueError(f"a window has at most {2 * s.n_window} frames, not {frames}")
        rows, wide, dim = (frames + 1) // 2, up(s.width), s.width // s.heads
        heard, hidden = (frames + 2) * mels, (frames + 2) * wide
        keys, values = (s.heads * up(rows) * size for size in (dim, up(dim)))
        widest, queries = max(up(3 * s.width), up(s.ffn)), min(rows, QUERIES)
        work = rows * wide, rows * widest, queries * (BLOCK + up(dim) + PANEL)
        # zeros where nothing is written
        numbers = heard, hidden, keys, values, rows * wide, *work
        given, *rest = (np.zeros(n, np.float32) for n in numbers)
        sizes = np.array([s.layers, s.heads, s.width, s.ffn, s.num_mels, s.output])
        spans = np.array([(0, 0, 0, rows, 0)])
        out = np.empty((batch, rows // 2, up(s.output)), np.float32)
        for window, embeddings in zip(np.asarray(features), out, strict=True):
            given.reshape(-1, mels)[1:-1] = window.T
            self._run(given, spans, sizes, *self._tables, *rest, embeddings.reshape(-1))
        return out[..., : s.output]
