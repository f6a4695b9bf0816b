"""In: readings, each as it is and changed. Out: the network of core/coach/voice.py.

It learns so that a second's mean tells the change: of tempo and of melody its octaves, of
loudness nothing but a gain. What a reading is compared with is the same reading as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import brentq
from torch import Tensor, nn

from pipelines.embedded.voice_versions import NUM_CHANGED, PLAIN, Reading, Version, drawn
from streamer.core.coach.voice import (
    LOUDNESS_DB,
    MOST_LOG,
    NUM_INPUTS,
    NUM_OUTPUTS,
    REACH,
    SPANS,
    STEPS_PER_S,
    Floats,
    Heard,
    Weights,
    heard_of,
    precision_of,
    silence_before,
    told,
)

CHANNELS = 64
EPOCHS = 40
BATCH = 6  # readings at once
RATE = 4e-3
DECAY = 1e-2
DROPOUT = 0.1
WINDOW = STEPS_PER_S // 2  # steps whose mean is judged: a change should be told soon
MEANS_SHARE = 2e-3  # of the loss: how far single steps lie off, so that none tells what others undo


class Net(nn.Module):
    """As voice.py's, with its hidden values normalised while it learns. log_sure: of each output,
    minus twice the logarithm of the SD of a second's mean."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [NUM_INPUTS, *(CHANNELS for _ in SPANS[1:]), NUM_OUTPUTS]
        self.layers = nn.ModuleList(
            nn.Conv1d(a, b, num, dilation=apart)
            for a, b, (num, apart) in zip(sizes, sizes[1:], SPANS, strict=False)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(CHANNELS) for _ in SPANS[1:])
        self.log_sure = nn.Parameter(torch.zeros(NUM_OUTPUTS - 1))
        with torch.no_grad():  # each step counts as one
            self.layers[-1].weight[-1] *= 0.1
            self.layers[-1].bias[-1] = 0

    def forward(self, seen: Tensor) -> Tensor:
        """[b, REACH + n, NUM_INPUTS] to [b, n, NUM_OUTPUTS]."""
        hidden = seen.transpose(1, 2)
        for layer, norm in zip(self.layers, self.norms, strict=False):
            hidden = F.dropout(F.relu(norm(layer(hidden))), DROPOUT, self.training)
        return self.layers[-1](hidden).transpose(1, 2)

    def weights(self) -> Weights:
        """With the norms in them."""
        return folded(self.layers, self.norms)


def folded(layers: nn.ModuleList, norms: nn.ModuleList) -> Weights:
    """Convolutions as arrays, with the norm that follows each but the last folded in."""
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


def fitted(readings: Sequence[Reading], seed: int = 0) -> Iterator[Net]:
    """The network after each epoch. It is one and the same."""
    torch.manual_seed(seed)
    chance = np.random.default_rng(seed)
    net = Net()
    num = -(-len(readings) // BATCH)
    optimiser = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, RATE, total_steps=EPOCHS * num + 1, pct_start=0.15
    )
    for _ in range(EPOCHS):
        net.train()
        order = chance.permutation(len(readings))
        for at in range(0, len(order), BATCH):
            loss = loss_of(net, [readings[i] for i in order[at : at + BATCH]], chance)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            optimiser.step()
            schedule.step()
        yield net.eval()


def loss_of(net: Net, readings: Sequence[Reading], chance: np.random.Generator) -> Tensor:
    """How unlikely the means of seconds are, beside those of the reading as it is."""
    versions = [v for reading in readings for v in drawn(reading, chance)]
    longest = max(len(v.speech) for v in versions)
    seen = np.zeros((len(versions), REACH + longest, NUM_INPUTS), np.float32)
    for i, v in enumerate(versions):
        seen[i, REACH : REACH + len(v.speech)] = silence_before(v.steps).then(v.steps).inputs()
    said = net(torch.from_numpy(seen))
    losses = []
    for at in range(0, len(versions), 1 + NUM_CHANGED):
        usual = None
        for i in range(at, at + 1 + NUM_CHANGED):
            v = versions[i]
            found, usual = of_version(net, said[i, : len(v.speech)], v, usual)
            losses += found
    return torch.stack(losses).mean()


def of_version(
    net: Net, said: Tensor, version: Version, usual: list[Tensor] | None
) -> tuple[list[Tensor], list[Tensor]]:
    """The losses of each kind, and what is usual of each: given, or of this version."""
    counts = torch.from_numpy(version.speech)
    voiced = counts & torch.from_numpy(version.steps.voiced)
    level_db = version.steps.level_db
    if version.gain_db is not None:
        level_db = level_db - version.gain_db
    level = torch.from_numpy(level_db) / LOUDNESS_DB
    parts = [(level - said[:, 0])[counts], said[counts, 1], said[voiced, 2]]
    precision = (MOST_LOG * torch.tanh(said[counts, 3] / MOST_LOG)).exp()
    counted = [precision, torch.ones_like(parts[1]), torch.ones_like(parts[2])]
    means = usual or [(c * p).sum() / c.sum() for c, p in zip(counted, parts, strict=True)]
    changes = (0.0, *version.octaves)  # a gain is taken off the level already
    losses = [
        unlikeliness(part - change - mean, log_sure, count)
        for part, change, mean, log_sure, count in zip(
            parts, changes, means, net.log_sure, counted, strict=True
        )
        if len(part) >= 2 * STEPS_PER_S
    ]
    return losses, means


def unlikeliness(off: Tensor, log_sure: Tensor, counts: Tensor) -> Tensor:
    """Of the means of windows, as normal ones about 0. counts: how much each step of `off` does; a
    window is as sure as its steps count."""
    whole = len(off) // WINDOW * WINDOW
    total = counts[:whole].view(-1, WINDOW).mean(1)
    means = (counts * off)[:whole].view(-1, WINDOW).mean(1) / total
    sure = log_sure.exp() * total
    return 0.5 * (sure * means**2 - sure.log()).mean() + MEANS_SHARE * (off**2).mean()


def centred(net: Net, readings: Sequence[Reading]) -> Weights:
    """Of what learns from differences alone a zero is anywhere. Here it is the mean of these
    readings as they are; of loudness, that of what lies beside the level."""
    weights = net.weights()
    means, last = [], []
    for reading in readings:
        plain = reading[PLAIN]
        said = said_of(weights, plain)
        spoken, voiced = said[plain.speech], said[plain.speech & plain.steps.voiced]
        means.append([spoken[:, 0].mean(), spoken[:, 1].mean(), voiced[:, 2].mean(), 0.0])
        last.append(spoken[:, 3])
    off = np.mean(means, 0, dtype=np.float32)
    off[-1] = surplus(np.concatenate(last))
    return Weights((*weights.biases[:-1], weights.biases[-1] - off), weights.kernels)


def surplus(said: np.ndarray) -> float:
    """What is to be taken off what the network says of precision, so that it is 1 in the mean."""

    def mean(off: float) -> float:
        return float(precision_of(said - off).mean()) - 1

    return float(brentq(mean, -10 * MOST_LOG, 10 * MOST_LOG))


def heard(weights: Weights, version: Version) -> Heard:
    """What the network says of a version, as a session would hear it."""
    return heard_of(said_of(weights, version), version.steps, version.speech)


def said_of(weights: Weights, version: Version) -> Floats:
    """[n, NUM_OUTPUTS], with silence before it."""
    inputs = silence_before(version.steps).then(version.steps).inputs()
    seen = np.concatenate([np.zeros((REACH, NUM_INPUTS), np.float32), inputs])
    return told(seen, weights)
