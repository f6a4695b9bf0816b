"""A matrix in 8 or 4 bits per weight, and its products.

Groups of weights along a row share a scale, as in llama.cpp's formats and in GPTQ
(arXiv 2210.17323, without its second-order correction): w = scale * q. The scale has the sign that
gives the group's largest weight the end of the range that reaches further.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from streamer.extras.large.products import Given, multiply
from streamer.extras.large.tile import COLUMNS, LINE
from streamer.model.checkpoint.layout import BITS

PANELS_AT_ONCE = 8  # so that float32 copies stay small
# Parts of the scale that are tried; the one of the least squared error is taken.
SHRUNK = (1.0, 0.9, 0.8)


@dataclass(frozen=True, slots=True)
class Form:
    """bits: of a weight. group: weights of a row that share a scale."""

    bits: int
    group: int


FORMS = {name: Form(*sizes) for name, sizes in BITS.items()}


@dataclass(frozen=True, slots=True)
class Matrix:
    """data [panels, groups, lines, LINE] int8 or, two weights in a byte, uint8; scales [panels,
    groups, COLUMNS] float32; size: out and in, int64."""

    data: Tensor
    scales: Tensor
    size: Tensor

    def times(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x @ weights.T + bias, [n, out] of x [n, in], float32. A row's bits depend on it alone."""
        return torch.from_numpy(multiply(x.contiguous().numpy(), self.given(bias)))

    def given(self, bias: Tensor | None = None) -> Given:
        """As compiled layers take it."""
        shift = None if bias is None else bias.numpy()
        return Given.of(self.data.numpy(), self.scales.numpy(), int(self.size[0]), shift)


def pack(weight: Tensor, form: Form) -> Matrix:
    """The nearest that the form can say."""
    out, inner = weight.shape
    panels, groups = -(-out // COLUMNS), -(-inner // form.group)
    lines = COLUMNS * form.group * form.bits // (8 * LINE)
    kind = torch.int8 if form.bits == 8 else torch.uint8
    data = torch.empty(panels, groups, lines, LINE, dtype=kind)
    scales = torch.empty(panels, groups, COLUMNS)
    for first in range(0, panels, PANELS_AT_ONCE):
        some = slice(first, min(first + PANELS_AT_ONCE, panels))
        rows = weight[first * COLUMNS : some.stop * COLUMNS].float()
        data[some], scales[some] = _packed(rows, form)
    return Matrix(data, scales, torch.tensor(weight.shape))


def _packed(rows: Tensor, form: Form) -> tuple[Tensor, Tensor]:
    fill = (0, -rows.shape[1] % form.group, 0, -len(rows) % COLUMNS)
    padded = F.pad(rows, fill)
    q, scales = _rounded(padded.view(len(padded), -1, form.group), form)
    panels = scales.view(-1, COLUMNS, scales.shape[1]).transpose(1, 2)
    fours = q.view(len(panels), COLUMNS, q.shape[1], -1, 4).permute(0, 2, 3, 1, 4)
    if form.bits == 8:
        return fours.reshape(*panels.shape[:2], -1, LINE), panels
    # a byte: one weight of four in the low bits, one of the next four in the high ones
    low, high = (fours + 8).view(torch.uint8).unflatten(2, (-1, 2)).unbind(3)
    return (low | (high << 4)).reshape(*panels.shape[:2], -1, LINE), panels


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
