"""A matrix in 8 or 4 bits per weight. In: weights [out, in]. Out: what MatMulNBits takes, and back.

Groups of weights along a row share a scale, as in llama.cpp's formats and in GPTQ
(arXiv 2210.17323, without its second-order correction): w = scale * (q - middle). The scale has the
sign that gives the group's largest weight the end of the range that reaches further.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from streamer.model.checkpoint.room import BITS

ROWS_AT_ONCE = 4096  # so that a float32 copy stays small
# Parts of the scale that are tried; the one of the least squared error is taken.
SHRUNK = (1.0, 0.9, 0.8)


@dataclass(frozen=True, slots=True)
class Form:
    """bits: of a weight. group: weights of a row that share a scale."""

    bits: int
    group: int

    @property
    def middle(self) -> int:
        """What stands for 0."""
        return 1 << (self.bits - 1)


FORMS = {name: Form(*sizes) for name, sizes in BITS.items()}


@dataclass(frozen=True, slots=True)
class Packed:
    """data [out, groups, group * bits / 8] uint8, low half first; scales [out, groups] float32."""

    form: Form
    inner: int
    data: NDArray[np.uint8]
    scales: NDArray[np.float32]

    def plain(self) -> NDArray[np.float32]:
        """The weights that it stands for, [out, in]."""
        q = self.data
        if self.form.bits == 4:
            q = np.stack([q & 15, q >> 4], -1).reshape(*q.shape[:2], -1)
        found = (q.astype(np.float32) - self.form.middle) * self.scales[..., None]
        return found.reshape(len(q), -1)[:, : self.inner]


def pack(weight: Tensor, form: Form) -> Packed:
    """The nearest that the form can say."""
    parts = list(_packed(weight, form))
    data, scales = (torch.cat(list(part)).numpy() for part in zip(*parts, strict=True))
    return Packed(form, weight.shape[1], data, scales)


def _packed(weight: Tensor, form: Form) -> Iterator[tuple[Tensor, Tensor]]:
    for rows in weight.split(ROWS_AT_ONCE):
        padded = F.pad(rows.float(), (0, -rows.shape[1] % form.group))
        groups = padded.view(len(rows), -1, form.group)
        q, scales = _rounded(groups, form)
        yield (q[..., 0::2] | (q[..., 1::2] << 4)) if form.bits == 4 else q, scales


def _rounded(groups: Tensor, form: Form) -> tuple[Tensor, Tensor]:
    top = groups.gather(-1, groups.abs().argmax(-1, keepdim=True))
    best: tuple[Tensor, Tensor, Tensor] | None = None
    # 8 bits are fine enough: nothing is to be won there
    for part in SHRUNK if form.bits == 4 else SHRUNK[:1]:
        scales = top * (-part / form.middle)
        inverse = torch.where(scales == 0, 0, 1 / scales)
        q = (groups * inverse).round_().clamp_(-form.middle, form.middle - 1)
        error = (q * scales - groups).square_().sum(-1, keepdim=True)
        if best is None:
            best = error, q, scales
        else:
            better = error < best[0]
            found = (error, q, scales)
            best = tuple(torch.where(better, a, b) for a, b in zip(found, best, strict=True))  # type: ignore[assignment]
    assert best is not None
    return (best[1] + form.middle).to(torch.uint8), best[2][..., 0]
