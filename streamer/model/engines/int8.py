"""The language model with 8-bit weights, `--engine int8`. In: embeddings of packed rows. Out:
hidden.

For models so large that reading the weights is the step. Weight-only, one scale per row of a
matrix, activations bfloat16 (arXiv 2208.07339 without its outlier columns). `python -m
bench.large` times it: on a CPU without bfloat16 units one row takes less than half the time of
float32. torch's kernel gives each row the same bits whatever rows stand beside it, so that, as in
engine `stable`, exact mode equals the cloud to the last bit.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from streamer.model.engines.stable import one_by_one
from streamer.model.engines.text import TextModel

LARGEST = 127.0
MULTIPLE = 32  # of both sizes; torch 2.13's kernel reads beyond the end of anything else
ROWS_AT_ONCE = 4096  # quantised at once, so that the float32 copy stays small


class Packed:
    """s round(W / s) of a weight [out, in], s = max |row| / 127 per row."""

    __slots__ = ("num_out", "padding", "scales", "weight")

    def __init__(self, weight: Tensor) -> None:
        self.num_out = len(weight)
        self.padding = -weight.shape[-1] % MULTIPLE
        weight = F.pad(weight, (0, self.padding, 0, -len(weight) % MULTIPLE))
        least = torch.finfo(torch.bfloat16).tiny
        # Rounded by the scale that is multiplied with: bfloat16 has 8 bits, and its error would
        # bend a whole row.
        self.scales = (weight.abs().amax(-1).float() / LARGEST).clamp_(min=least).bfloat16()
        parts = zip(weight.split(ROWS_AT_ONCE), self.scales.split(ROWS_AT_ONCE), strict=True)
        self.weight = torch.cat([_rounded(rows, scales) for rows, scales in parts])

    def times(self, x: Tensor) -> Tensor:
        """[n, out] of rows [n, in], both bfloat16."""
        if self.padding:
            x = F.pad(x, (0, self.padding))
        out: Tensor = torch.ops.aten._weight_int8pack_mm(x, self.weight, self.scales)
        return out[:, : self.num_out]


class Int8Text(TextModel):
    """A row's bits depend on its own ids alone: not on their cut, nor on the rows beside it. The
    embedding stays."""

    def _pack(self, weight: Tensor) -> Packed:
        return Packed(weight)

    def _linear(self, x: Tensor, weight: Packed, bias: Tensor | None = None) -> Tensor:
        out = weight.times(x)
        return out if bias is None else out + bias

    def _weigh(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, n: int
    ) -> Tensor:
        return one_by_one(queries, keys, values, n)


def _rounded(weight: Tensor, scales: Tensor) -> Tensor:
    return (
        weight.float()
        .div_(scales.float()[:, None])
        .round_()
        .clamp_(-LARGEST, LARGEST)
        .to(torch.int8)
    )
