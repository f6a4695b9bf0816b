"""In: recordings in bands, as core/measures/density.py has them. Out: the same at another tempo, by
another voice and microphone, and in some noise, so that a network hears what lasts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from streamer.core.measures.density import NUM_BANDS, SEEN

STRETCH = 0.2  # log of the tempo, at most
SHIFT = 1.0  # bands, at most
TILT, CURVE, HISS = 0.3, 0.1, 0.15  # standard deviations, log10 power
NOISY = 0.5  # of the recordings
SNR = (1.5, 5.0)  # log10 power


def played(
    chosen: Sequence[tuple[Tensor, Tensor]], chance: np.random.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Their steps [b, n + 2 SEEN, NUM_BANDS + 1] and speech [b, n], changed by chance, and how many
    times as fast they are [b]."""
    lengths = [len(speech) for _, speech in chosen]
    tempos = np.exp(chance.uniform(-STRETCH, STRETCH, len(chosen)))
    nums = [round(length / tempo) for length, tempo in zip(lengths, tempos, strict=True)]
    steps = torch.zeros(len(chosen), max(nums) + 2 * SEEN, NUM_BANDS + 1)
    speech = torch.zeros(len(chosen), max(nums))
    for i, ((its, spoken), num) in enumerate(zip(chosen, nums, strict=True)):
        at = ((torch.arange(num) + 0.5) * (lengths[i] / num) - 0.5).clamp(0, lengths[i] - 1)
        steps[i, SEEN : SEEN + num] = between(its, at[:, None], 0)
        speech[i, :num] = spoken[(at + 0.5).long().clamp(max=lengths[i] - 1)]
    here = steps[..., -1:]
    steps[..., :-1] = coloured(steps[..., :-1], here, chance) * here
    return steps, speech, torch.tensor(np.divide(lengths, nums), dtype=torch.float32)


def coloured(bands: Tensor, here: Tensor, chance: np.random.Generator) -> Tensor:
    """Another voice, microphone and noise for each of [b, n, NUM_BANDS]."""
    num = len(bands)
    slope = torch.linspace(-1, 1, NUM_BANDS)
    shift = _by_chance(chance.uniform(-SHIFT, SHIFT, num))
    at = (torch.arange(NUM_BANDS) + shift).clamp(0, NUM_BANDS - 1)
    curve = _by_chance(chance.normal(0, CURVE, (num, 5)))[:, None, :, 0]
    curve = F.interpolate(curve, size=NUM_BANDS, mode="linear", align_corners=True)
    tilt = _by_chance(chance.normal(0, TILT, num)) * slope
    bands = between(bands, at.expand(num, bands.shape[1], -1), 2) + tilt + curve
    levels = bands.mean(2).masked_fill(here[..., 0] == 0, -10.0)
    loud = levels.topk(max(1, levels.shape[1] // 10), 1).values[:, -1, None, None]
    noise = loud - _by_chance(chance.uniform(*SNR, num))
    noise = noise + _by_chance(chance.normal(0, TILT, num)) * slope + HISS * torch.randn_like(bands)
    is_noisy = torch.from_numpy(chance.random(num) < NOISY)[:, None, None]
    natural = float(np.log(10.0))
    return torch.where(is_noisy, torch.logaddexp(bands * natural, noise * natural) / natural, bands)


def between(values: Tensor, at: Tensor, axis: int) -> Tensor:
    """What lies at places that are no whole numbers, along an axis."""
    low = at.long().clamp(max=values.shape[axis] - 2)
    share = at - low
    if axis == 0:
        return values[low[:, 0]] * (1 - share) + values[low[:, 0] + 1] * share
    return values.gather(axis, low) * (1 - share) + values.gather(axis, low + 1) * share


def _by_chance(values: np.ndarray) -> Tensor:
    """[b, ...] as [b, ..., 1], or of one number each as [b, 1, 1]."""
    found = torch.from_numpy(values.astype(np.float32))
    return found[..., None] if found.ndim > 1 else found[:, None, None]
