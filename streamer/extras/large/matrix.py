"""A matrix in 8 or 4 bits per weight, and its products.

Groups of weights along a row share a scale, as in llama.cpp's formats and in GPTQ
(arXiv 2210.17323, without its second-order correction): w = scale * q. The scale has the sign that
gives the group's largest weight the end of the range that reaches further.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from streamer.extras.large.layers import APART, SPARE, times
from streamer.extras.large.tile import COLUMNS, LINE
from streamer.model.devices import num_cores

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
        own, of = np.array(self.addresses(bias)), self.data.numpy().reshape(-1)[:0]
        flat, width = x.contiguous().numpy().reshape(-1), y.shape[1]
        room = room_for(rows, [inner], self.form[0])
        given = flat, rows, inner, own, of, y.numpy().reshape(-1), width, room, self.form
        by_all(times, 2, threads, *given)
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
        data[some], scales[some] = _packed(rows, bits, group)
    return Matrix(data, scales, torch.tensor(weight.shape))


def _packed(rows: Tensor, bits: int, group: int) -> tuple[Tensor, Tensor]:
    padded = F.pad(rows, (0, -rows.shape[1] % group, 0, -len(rows) % COLUMNS))
    q, scales = _rounded(padded.view(len(padded), -1, group), bits)
    panels = scales.view(-1, COLUMNS, scales.shape[1]).transpose(1, 2)
    fours = q.view(len(panels), COLUMNS, q.shape[1], -1, 4).permute(0, 2, 3, 1, 4)
    if bits == 8:
        return fours.reshape(*panels.shape[:2], -1, LINE), panels
    # a byte: one weight of four in the low bits, one of the next four in the high ones
    low, high = (fours + 8).view(torch.uint8).unflatten(2, (-1, 2)).unbind(3)
    return (low | (high << 4)).reshape(*panels.shape[:2], -1, LINE), panels


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
        best, scales, q = (
            torch.where(better, a, b) for a, b in ((error, best), (tried, scales), (whole, q))
        )
    return q.to(torch.int8), scales[..., 0]
