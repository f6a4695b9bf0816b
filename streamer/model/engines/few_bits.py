"""A matrix in 8 or 4 bits per weight. In: weights [out, in]. Out: its products.

Groups of weights along a row share a scale, as in llama.cpp's formats and in GPTQ
(arXiv 2210.17323, without its second-order correction): w = scale * q. The scale has the sign that
gives the group's largest weight the end of the range that reaches further.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from streamer.model.checkpoint.room import BITS
from streamer.model.kernels.few_bits import BYTES, COLUMNS, multiply

ROWS_AT_ONCE = 512  # so that float32 copies stay small; a multiple of COLUMNS
# Parts of the scale that are tried; the one of the least squared error is taken.
SHRUNK = (1.0, 0.9, 0.8)
STEPS = 32_767  # of an activation: 16 bits, of which the largest of its row takes all


@dataclass(frozen=True, slots=True)
class Form:
    """bits: of a weight. group: weights of a row that share a scale."""

    bits: int
    group: int


FORMS = {name: Form(*sizes) for name, sizes in BITS.items()}


@dataclass(frozen=True, slots=True)
class Matrix:
    """data [panels, groups, units, COLUMNS, BYTES] int8 or, two weights in a byte, uint8; scales
    [panels, groups, COLUMNS] float32; size: out and in, int64."""

    data: Tensor
    scales: Tensor
    size: Tensor

    def times(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x @ weights.T + bias, [n, out] of x [n, in], float32. A row's bits depend on it alone."""
        out, inner = self.size.tolist()
        step = x.abs().amax(-1, keepdim=True).clamp_min_(1e-30).div_(STEPS)
        rows = (x / step).round_().to(torch.int16)
        rows = F.pad(rows, (0, _width(self) - inner))
        sums = multiply(rows.numpy(), self.data.numpy(), self.scales.numpy())
        found = torch.from_numpy(sums)[:, :out].mul_(step)
        return found if bias is None else found.add_(bias)


def _width(matrix: Matrix) -> int:
    """`in`, filled up to whole groups."""
    _, groups, units, _, size = matrix.data.shape
    return groups * units * size * (2 if matrix.data.dtype == torch.uint8 else 1)


def pack(weight: Tensor, form: Form) -> Matrix:
    """The nearest that the form can say."""
    parts = list(_packed(weight, form))
    data, scales = (torch.cat(list(part)) for part in zip(*parts, strict=True))
    return Matrix(data, scales, torch.tensor(weight.shape))


def _packed(weight: Tensor, form: Form) -> Iterator[tuple[Tensor, Tensor]]:
    for rows in weight.split(ROWS_AT_ONCE):
        fill = (0, -rows.shape[1] % form.group, 0, -len(rows) % COLUMNS)
        padded = F.pad(rows.float(), fill)
        groups = padded.view(len(padded), -1, form.group)
        q, scales = _rounded(groups, form)
        units = q.view(len(q) // COLUMNS, COLUMNS, q.shape[1], -1, BYTES * 8 // form.bits)
        if form.bits == 4:
            low, high = units[..., :BYTES], units[..., BYTES:]
            units = ((low & 15) | (high << 4)).view(torch.uint8)
        panels = scales.view(-1, COLUMNS, scales.shape[1])
        yield units.permute(0, 2, 3, 1, 4).contiguous(), panels.transpose(1, 2).contiguous()


def _rounded(groups: Tensor, form: Form) -> tuple[Tensor, Tensor]:
    least, most = torch.aminmax(groups, dim=-1, keepdim=True)
    top = torch.where(-least > most, least, most)
    end = 1 << (form.bits - 1)
    best: tuple[Tensor, Tensor, Tensor] | None = None
    # 8 bits are fine enough: nothing is to be won there
    for part in SHRUNK if form.bits == 4 else SHRUNK[:1]:
        scales = top * (-part / end)
        inverse = torch.where(scales == 0, 0, 1 / scales)
        q = (groups * inverse).round_().clamp_(-end, end - 1)
        error = (q * scales - groups).square_().sum(-1, keepdim=True)
        if best is None:
            best = error, q, scales
        else:
            better = error < best[0]
            found = (error, q, scales)
            best = tuple(torch.where(better, a, b) for a, b in zip(found, best, strict=True))  # type: ignore[assignment]
    assert best is not None
    return best[1].to(torch.int8), best[2][..., 0]
