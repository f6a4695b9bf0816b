"""Products in few bits, in plain numpy. In: a matrix and rows. Out: the kernel's own bits."""

import numpy as np
import torch
import torch.nn.functional as F


def whole_numbers(matrix, form):
    """[out, groups, group] int64: what its bytes say, read as multiply's docstring tells."""
    data = matrix.data.numpy()
    fours = data.reshape(*data.shape[:3], 1, 16, 4).astype(np.int64)
    if form.bits == 4:
        fours = np.concatenate([fours & 15, fours >> 4], 3) - 8
    # [panels, groups, lines, fours of a line, columns, 4]
    columns = fours.transpose(0, 4, 1, 2, 3, 5).reshape(-1, data.shape[1], form.group)
    return columns[: int(matrix.size[0])]


def scales_of(matrix):
    return matrix.scales.transpose(1, 2).flatten(0, 1)[: int(matrix.size[0])].numpy()


def plain(matrix, form):
    """The weights that it stands for."""
    whole = whole_numbers(matrix, form) * scales_of(matrix)[..., np.newaxis]
    return torch.from_numpy(whole.reshape(len(whole), -1)[:, : int(matrix.size[1])]).float()


def product(matrix, form, x, bias=0):
    """As the kernel promises it, to the last bit: rounded groups, exact sums, one rounding of each
    group's part."""
    f4, wide = np.float32, np.longdouble
    inner = x.shape[1]
    groups = F.pad(x, (0, -inner % form.group)).unflatten(1, (-1, form.group)).numpy()
    largest = np.maximum(np.abs(groups).max(-1), f4(1e-30))
    q = np.rint(groups * (f4(127) / largest)[..., np.newaxis]).astype(np.int64)
    sums = np.einsum("rgk,cgk->grc", q, whole_numbers(matrix, form)).astype(f4)
    total = np.zeros(sums.shape[1:], f4)
    for g, part in enumerate(sums):
        scale = scales_of(matrix)[:, g] * (largest[:, g] / f4(127))[:, np.newaxis]
        total = (part.astype(wide) * scale.astype(wide) + total).astype(f4)
    return torch.from_numpy(total) + bias
