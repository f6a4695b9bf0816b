"""Matrices in 8 or 4 bits per weight, and the language model and audio tower made of them.

Groups of weights along a row share a scale, as in llama.cpp's formats and in GPTQ
(arXiv 2210.17323, without its second-order correction): w = scale * q. The scale has the sign that
gives the group's largest weight the end of the range that reaches further.

They are for models that spend a step on reading their weights. The language model's layers and the
tower's products run on compiled kernels (layers.py), and torch runs the rest. A row's bits depend
on that row alone, so mode `exact` equals `cloud` to the last bit, as with engine `stable`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Seq
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from streamer.extras.large.layers import APART, PHASES, SPARE, feed, times
from streamer.extras.large.tile import COLUMNS, LINE
from streamer.model.checkpoint.layout import EMBEDDING, TextShape
from streamer.model.devices import num_cores
from streamer.model.engines.engine import KVSlots, Span, compiled_slots
from streamer.model.engines.load import AudioTower, TextModel

Part = Mapping[str, Any]  # of a model: tensors, and matrices in few bits
REST = "rest"  # the part without matrices: embedding, convolutions, the tower's ends
PANELS_AT_ONCE = 8  # so that float32 copies stay small
# Parts of the scale that are tried for 4 bits; the one of the least squared error is taken.
SHRUNK = (1.0, 0.9, 0.8)
MOST_THREADS = 64
WORTH = 1_000_000  # multiplications that are worth a thread: 0.1 ms of it


class Matrix(NamedTuple):
    """data [panels, groups, lines, LINE]: int8, a line holds 4 weights of each column, as [COLUMNS,
    4]; or uint8, the same of bytes of two weights of 4 bits, plus 8: the first four are in the low
    bits, the next in the high ones. scales [panels, groups, COLUMNS] float32; size: out and in,
    int64."""

    data: Tensor
    scales: Tensor
    size: Tensor

    @property
    def form(self) -> tuple[int, int, np.int32]:
        """Weights of a group, its lines, and the number that stands for 0."""
        lines, is_packed = self.data.shape[2], self.data.dtype == torch.uint8
        group = lines * LINE // COLUMNS * (1 + is_packed)
        return group, lines, np.int32(8 if is_packed else 128)

    def addresses(self, bias: Tensor | None = None) -> list[int]:
        """Its weights, scales and bias, as layers.py finds them; all must stay meanwhile."""
        shift = 0 if bias is None else bias.data_ptr()
        return [self.data.data_ptr(), self.scales.data_ptr(), shift]

    def times(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x @ weights.T + bias, [n, out] of x [n, in], float32. A row's bits depend on it alone."""
        rows, inner = x.shape
        y = torch.empty(rows, int(self.size[0]))
        threads = min(num_threads(), max(1, y.numel() * inner // WORTH))
        by_all(
            times,
            2,
            threads,
            x.contiguous().numpy().reshape(-1),
            rows,
            inner,
            np.array(self.addresses(bias)),
            self.data.numpy().reshape(-1)[:0],
            y.numpy().reshape(-1),
            y.shape[1],
            room_for(rows, [inner], self.form[0]),
            self.form,
        )
        return y


def room_for(rows: int, inner: Iterable[int], group: int) -> tuple[NDArray[Any], ...]:
    """Memory for rows of any of these widths in 8 bits, their steps and their starts."""
    groups = rows * max(-(-width // group) for width in inner)
    q = np.empty(groups * group + rows * SPARE, np.int8)
    return q, np.empty(groups, np.float32), np.empty(groups, np.int32)


def by_all(function: Callable[..., None], phases: int, threads: int, *given: Any) -> None:
    """Run a function of layers.py on `threads`, one of which is the caller's."""
    cells = np.zeros(phases * APART, np.int64)
    others = [_helpers().submit(function, cells, threads, *given) for _ in range(threads - 1)]
    function(cells, threads, *given)
    for each in others:
        each.cancel()  # it would find nothing to do


@cache
def _helpers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MOST_THREADS, "few-bits")


@cache
def num_threads() -> int:
    """Threads of a product: the cores; OMP_NUM_THREADS in the environment bounds them."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(num_cores(), int(said) if said.isdecimal() else MOST_THREADS, MOST_THREADS))


def pack(weight: Tensor, bits: int, group: int) -> Matrix:
    """The nearest that weights of `bits` can say, where `group` of a row share a scale."""
    out, inner = weight.shape
    panels, groups = -(-out // COLUMNS), -(-inner // group)
    lines = COLUMNS * group * bits // (8 * LINE)
    kind = torch.int8 if bits == 8 else torch.uint8
    data = torch.empty(panels, groups, lines, LINE, dtype=kind)
    scales = torch.empty(panels, groups, COLUMNS)
    for first in range(0, panels, PANELS_AT_ONCE):
        some = slice(first, min(first + PANELS_AT_ONCE, panels))
        rows = weight[first * COLUMNS : some.stop * COLUMNS].float()
        padded = F.pad(rows, (0, -inner % group, 0, -len(rows) % COLUMNS))
        q, found = _rounded(padded.view(len(padded), groups, group), bits)
        scales[some] = found.view(-1, COLUMNS, groups).transpose(1, 2)
        fours = q.view(-1, COLUMNS, groups, group // 4, 4).permute(0, 2, 3, 1, 4)
        if bits == 4:
            # a byte: one weight of four in the low bits, one of the next four in the high ones
            low, high = (fours + 8).view(torch.uint8).unflatten(2, (-1, 2)).unbind(3)
            fours = low | (high << 4)
        data[some] = fours.reshape(-1, groups, lines, LINE)
    return Matrix(data, scales, torch.tensor(weight.shape))


def _rounded(groups: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    least, most = torch.aminmax(groups, dim=-1, keepdim=True)
    top = torch.where(-least > most, least, most)
    end = 1 << (bits - 1)
    best = torch.full_like(top, torch.inf)
    q, scales = torch.zeros_like(groups), torch.zeros_like(top)
    for part in SHRUNK if bits == 4 else SHRUNK[:1]:
        tried = top * (-part / end)
        whole = (groups * torch.where(tried == 0, 0, 1 / tried)).round_().clamp_(-end, end - 1)
        error = (whole * tried - groups).square_().sum(-1, keepdim=True)
        better = error < best
        best = torch.where(better, error, best)
        scales = torch.where(better, tried, scales)
        q = torch.where(better, whole, q)
    return q.to(torch.int8), scales[..., 0]


class FewBitsText(TextModel):
    """A row's bits depend on its own ids alone: not on their cut, nor on the rows beside it."""

    def __init__(self, parts: Mapping[str, Part], shape: TextShape) -> None:
        self.shape = shape
        self.embedding = parts[REST][EMBEDDING]
        self.norm, self.head = parts["head"]["norm"], parts["head"]["head"]
        self.layers = [parts[f"text.{i}"] for i in range(shape.layers)]
        # it holds addresses: `layers` keeps the arrays alive
        rows = []
        for of in self.layers:
            row = [of["norm_in"].data_ptr(), of["norm_mlp"].data_ptr()]
            row += of["qkv"].addresses(of["qkv_bias"])
            for name in ("out", "gate_up", "down"):
                row += of[name].addresses()
            rows.append(row)
        self._table = np.array(rows)

    def slots(self, num_slots: int, max_len: int) -> KVSlots:
        """KV memory in float32, as the compiled attention reads it."""
        return compiled_slots(self.shape, num_slots, max_len)

    def embed(self, ids: Seq[int]) -> Tensor:
        """[n, hidden] float32 of `ids`."""
        return super().embed(ids).float()

    def forward(self, x: Tensor, spans: Seq[Span], slots: KVSlots) -> Tensor:
        """As `TextModel.forward`, in place."""
        s, rows, first = self.shape, len(x), self.layers[0]["qkv"]
        where = np.array([(at.slot, at.start, at.first, at.n, at.num_logits) for at in spans])
        inner = s.heads * s.head_dim
        widest = max(inner + 2 * s.kv_heads * s.head_dim, 2 * s.ffn)
        given = np.empty(rows * max(s.hidden, inner, s.ffn), np.float32)
        wide, change = np.empty(rows * widest, np.float32), np.zeros(rows * s.hidden, np.float32)
        rooms = given, wide, change, room_for(rows, (s.hidden, inner, s.ffn), first.form[0])
        own = x.numpy()
        by_all(
            feed,
            len(self.layers) * PHASES,
            num_threads(),
            own.reshape(-1),
            where,
            (s.heads, s.kv_heads, s.head_dim, s.hidden, s.ffn, slots.values.shape[3]),
            np.float32(s.eps),
            self._table,
            first.data.numpy().reshape(-1)[:0],
            slots.angles,
            (slots.keys.reshape(s.layers, -1), slots.values.reshape(s.layers, -1)),
            rooms,
            first.form,
        )
        own += change.reshape(own.shape)
        return x

    def _linear(self, x: Tensor, weight: Matrix, bias: Tensor | None = None) -> Tensor:
        return weight.times(x, bias)


class FewBitsTower(AudioTower):
    """`encode` turns windows into embeddings; convolutions and the projection are float32."""

    windows_at_once = 1  # a window has rows enough for every thread

    def _linear(self, x: Tensor, weight: Matrix, bias: Tensor) -> Tensor:
        return weight.times(x.flatten(0, -2), bias).view(*x.shape[:-1], -1)
