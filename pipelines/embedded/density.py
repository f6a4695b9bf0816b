"""In: recordings whose number of syllables is known. Out: the network of core/measures/density.py,
which says where they are.

It is told the rate of each recording alone, and hears each another way each time (density_play.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipelines.embedded.density_play import played
from streamer.core.measures.density import (
    AROUND,
    MOST,
    NUM_BANDS,
    SEEN,
    SPANS,
    STEP_FRAMES,
    Weights,
    in_bands,
    in_steps,
)

CHANNELS = 32
EPOCHS = 30
BATCH = 32
NEAR = 8  # batches whose recordings are put together by their length
RATE = 1e-2
DECAY = 1e-2
DROPOUT = 0.05


@dataclass(frozen=True)
class Told:
    """A recording: `in_steps` [n, NUM_BANDS + 1], what part of each is speech [n], seconds of
    speech and syllables per second of it, and how much it weighs."""

    steps: Tensor
    speech: Tensor
    seconds: float
    rate: float
    weight: float = 1.0

    @classmethod
    def of(cls, raw: np.ndarray, speech: np.ndarray, seconds: float, rate: float) -> Told:
        """raw: [n_frames, 128] log10 mel power; speech: [n_frames]."""
        steps = in_steps(in_bands(raw))
        padded = np.pad(speech.astype(np.float32), (0, -len(speech) % STEP_FRAMES))
        part = padded.reshape(-1, STEP_FRAMES).mean(1)
        return cls(torch.from_numpy(steps), torch.from_numpy(part), seconds, rate)


class Net(nn.Module):
    """As density.py's, with its hidden values normalised while it learns."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [NUM_BANDS, *(CHANNELS for _ in SPANS[1:]), 1]
        self.layers = nn.ModuleList(
            nn.Conv1d(a, b, num, dilation=apart)
            for a, b, (num, apart) in zip(sizes, sizes[1:], SPANS, strict=False)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(CHANNELS) for _ in SPANS[1:])
        nn.init.constant_(self.layers[-1].bias, -2.0)  # some six syllables per second

    def forward(self, steps: Tensor) -> Tensor:
        """[b, n + 2 SEEN, NUM_BANDS + 1] to syllables in each step [b, n]."""
        hidden = over_their_means(steps).transpose(1, 2)
        for layer, norm in zip(self.layers, self.norms, strict=False):
            hidden = F.dropout(F.relu(norm(layer(hidden))), DROPOUT, self.training)
        return F.softplus(self.layers[-1](hidden))[:, 0]

    def weights(self) -> Weights:
        """With the norms in them."""
        return folded(self.layers, self.norms)


def folded(layers: nn.ModuleList, norms: nn.ModuleList) -> Weights:
    """Of convolutions, each but the last with a norm behind it, that norm in them."""
    biases, kernels = [], []
    for i, layer in enumerate(layers):
        kernel, bias = layer.weight.detach(), layer.bias.detach()
        if i < len(norms):
            norm = norms[i]
            scale = norm.weight.detach() / (norm.running_var + norm.eps).sqrt()
            kernel = kernel * scale[:, None, None]
            bias = (bias - norm.running_mean) * scale + norm.bias.detach()
        kernels.append(kernel.permute(2, 1, 0).flatten(0, 1).numpy())
        biases.append(bias.numpy())
    return Weights(tuple(biases), tuple(kernels))


def over_their_means(steps: Tensor) -> Tensor:
    """As density.py's."""
    num, length, bands = steps.shape
    bell = torch.hann_window(2 * AROUND + 3, periodic=False)[None, None, 1:-1]
    rows = steps.transpose(1, 2).reshape(num * bands, 1, length)
    sums = F.conv1d(rows, bell).reshape(num, bands, -1).transpose(1, 2)
    here = steps[:, AROUND : length - AROUND]
    off = here[..., :-1] - sums[..., :-1] / sums[..., -1:].clamp(min=1e-6)
    return off.clamp(-MOST, MOST) * here[..., -1:]


def fitted(told: Sequence[Told], seed: int = 0) -> Iterator[Net]:
    """The network after each epoch, by least absolute error of the rate. It is one and the same."""
    torch.manual_seed(seed)
    chance = np.random.default_rng(seed)
    net = Net()
    num = -(-len(told) // BATCH)
    optimiser = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, RATE, total_steps=EPOCHS * num + 1, pct_start=0.15
    )
    mean = float(np.mean([one.weight for one in told]))
    for _ in range(EPOCHS):
        net.train()
        for chosen in batches(told, chance):
            steps, speech, tempo = played([(one.steps, one.speech) for one in chosen], chance)
            said = (net(steps) * speech).sum(1) * tempo / _each(chosen, "seconds")
            off = (said - _each(chosen, "rate") * tempo).abs() * _each(chosen, "weight") / mean
            optimiser.zero_grad()
            off.mean().backward()
            optimiser.step()
            schedule.step()
        yield net.eval()


@torch.no_grad()
def rates(net: Net, told: Sequence[Told]) -> np.ndarray:
    """What it says of each [n], in syllables/s."""
    padded = [(F.pad(one.steps, (0, 0, SEEN, SEEN))[None], one) for one in told]
    return np.array([float((net(x)[0] * one.speech).sum()) / one.seconds for x, one in padded])


def batches(told: Sequence[Told], chance: np.random.Generator) -> Iterator[list[Told]]:
    """All of them, by chance, those of a batch about as long."""
    order = chance.permutation(len(told))
    found = []
    for at in range(0, len(order), NEAR * BATCH):
        near = sorted(order[at : at + NEAR * BATCH], key=lambda i: len(told[i].steps))
        found += [near[i : i + BATCH] for i in range(0, len(near), BATCH)]
    for i in chance.permutation(len(found)):
        yield [told[j] for j in found[i]]


def _each(chosen: list[Told], name: str) -> Tensor:
    return torch.tensor([getattr(one, name) for one in chosen], dtype=torch.float32)
