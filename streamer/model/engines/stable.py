"""`TextModel` with one numeric class for all shapes, `--engine stable`.

A matrix library picks its kernel by the number of rows, and another kernel adds in another order:
one id at a time and a block of five differ in the last bits, and once in a while in an id. Here
every product runs on as many rows at once as have been seen to give the bits that two rows give
(MKL on AVX2: up to 15), and every position attends by itself.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from streamer.model.checkpoint.shapes import TextShape
from streamer.model.engines.text import TextModel

SIZES = (15, 7, 3)  # rows at once, tried in this order; one by one where none of them holds


class StableText(TextModel):
    """A row's bits depend on its own ids alone: not on their cut, nor on the rows beside it."""

    def __init__(self, weights: dict[str, Tensor], shape: TextShape) -> None:
        super().__init__(weights, shape)
        first = self.layers[0]
        products = (first.qkv, first.out, first.gate_up, first.down, self.head)
        self.rows_at_once = next((n for n in SIZES if all(agree(m, n) for m in products)), 1)

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.rows_at_once > 1 and 2 <= len(x) <= self.rows_at_once:
            return F.linear(x, weight, bias)
        return torch.cat([self._few(part, weight, bias) for part in x.split(self.rows_at_once)])

    def _few(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """One row stands twice: alone it would be a product of another kind."""
        if self.rows_at_once > 1 and len(x) == 1:
            return F.linear(x.repeat(2, 1), weight, bias)[:1]
        return F.linear(x, weight, bias)

    def _weigh(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, n: int
    ) -> Tensor:
        return one_by_one(queries, keys, values, n)


def one_by_one(queries: Tensor, keys: Tensor, values: Tensor, n: int) -> Tensor:
    """Attention of the last `n` positions, each as if it were the last, as `_weigh` takes it."""
    if n == 1:
        return F.scaled_dot_product_attention(queries, keys, values)
    end = keys.shape[2]
    by_position = queries.unflatten(2, (-1, n))
    parts = []
    for i in range(n):
        read = slice(0, end - n + i + 1)
        one = by_position[:, :, :, i].contiguous()
        parts.append(F.scaled_dot_product_attention(one, keys[:, :, read], values[:, :, read]))
    return torch.stack(parts, dim=3).flatten(2, 3)


@torch.inference_mode()
def agree(weight: Tensor, most: int) -> bool:
    """Whether 2 to `most` rows give each row the same bits."""
    x = torch.randn(most, weight.shape[1], generator=torch.Generator().manual_seed(0)).to(weight)
    wanted = torch.cat([F.linear(x[[i, i]], weight)[:1] for i in range(most)])
    return all(torch.equal(F.linear(x[:n], weight), wanted[:n]) for n in range(2, most + 1))
