"""Heads that exist in training alone: on the audio tower, with targets of a turn and of every 40 ms,
and on the text model, with those of a turn."""

import torch
import torch.nn.functional as F
from torch import nn

from pipelines.embedded.batches import UNKNOWN, Batch
from pipelines.embedded.labels import ATTRIBUTES, NUM_LEVELS

COUNT, LEVEL = 6.0, 0.5  # weights of the syllables and the level of frames
TEMPO = 3.0  # weight of the tempo track, which is learnt the slowest
MIDDLE = 160.0, 4.9  # Hz, syllables per second


class Levels(nn.Module):
    """Reads the levels and measures of a turn from a vector of it."""

    def __init__(self, width: int, hidden_width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, hidden_width)
        classes = {name: nn.Linear(hidden_width, n) for name, n in NUM_LEVELS.items()}
        self.classes = nn.ModuleDict(classes)
        self.measures = nn.Linear(hidden_width, len(ATTRIBUTES))

    def errors(self, x: torch.Tensor, batch: Batch, beta: float) -> tuple[torch.Tensor, ...]:
        """(loss of the levels, share of each attribute's that are right [7], error of each measure
        or 0 and whether it is known [n_turns, 7]) of `x` [n_turns, width]."""
        hidden = F.gelu(self.hidden(x))
        loss, right = x.new_zeros(()), []
        for i, head in enumerate(self.classes.values()):
            target, said = batch.levels[:, i], head(hidden)
            num = (target != UNKNOWN).sum().clamp(min=1)
            off = F.cross_entropy(said, target, ignore_index=UNKNOWN, reduction="sum")
            loss = loss + off / num / len(ATTRIBUTES)
            right.append((said.argmax(-1) == target).sum() / num)
        there = (~batch.measures.isnan()).float()
        measures = torch.nan_to_num(batch.measures).clamp(-3, 3)
        off = F.smooth_l1_loss(self.measures(hidden), measures, reduction="none", beta=beta)
        return loss, torch.stack(right), off * there, there


class Heads(Levels):
    """Levels and measures, read from mean and SD over a turn's embeddings; targets of frames,
    read from each embedding."""

    def __init__(self, width: int) -> None:
        super().__init__(2 * width, 2 * width)
        # voiced, f0, syllables per second of the phrase, speech, syllables, level
        self.frames = nn.Linear(width, 6)

    def forward(self, heard: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """(loss, share of each attribute's levels that are right [7]) of the embeddings `heard`
        [n_embeddings, width] float32."""
        turns = pooled(heard, batch.owner, len(batch.levels))
        loss, right, off, there = self.errors(turns, batch, beta=1.0)
        loss = loss + off.sum() / there.sum().clamp(min=1)
        return loss + 0.5 * self.frame_loss(heard, batch.frames), right

    def frame_loss(self, heard: torch.Tensor, frames: torch.Tensor) -> torch.Tensor:
        """Pitch, tempo, speech, syllables and level frame by frame, of the clean signal: targets
        pooled over a turn teach the tower these slowly."""
        read = self.frames(heard)
        there, mean = frames[:, (0, 2)], frames[:, (1, 3)]
        target = 2 * torch.log2(mean.clamp(min=1.0) / mean.new_tensor(MIDDLE))
        off = F.smooth_l1_loss(read[:, 1:3], target, reduction="none", beta=0.2) * there
        off = off.sum(0) / there.sum(0).clamp(min=1)
        flags = F.binary_cross_entropy_with_logits(read[:, (0, 3)], frames[:, (0, 4)])
        return off[0] + TEMPO * off[1] + 2 * flags + self._counted(read, frames)

    def _counted(self, read: torch.Tensor, frames: torch.Tensor) -> torch.Tensor:
        """Loss of syllables and level in frames of speech."""
        speaks, syllables, level = frames[:, 4], frames[:, 5], frames[:, 6]
        counted = (~syllables.isnan()).float() * (speaks + 0.1)
        off = F.softplus(read[:, 4]) - torch.nan_to_num(syllables)
        # syllables of half a second: their number matters more than their exact places
        near = F.avg_pool1d((off * (counted > 0))[None, None], 13, 1, 6)[0, 0]
        density = ((near.abs() + 0.3 * off.abs()) * counted).sum() / counted.sum().clamp(min=1)
        level = (level.clamp(-60, 0) + 30) / 10
        loud = F.smooth_l1_loss(read[:, 5], level, reduction="none", beta=0.2) * speaks
        return COUNT * density + LEVEL * loud.sum() / speaks.sum().clamp(min=1)


class Asked(Levels):
    """Measures and levels, read from the text model before the answer: exact values teach it more
    than the words of a sentence do."""

    def __init__(self, width: int) -> None:
        super().__init__(width, 2 * width)

    def forward(self, before: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The loss of the hidden states before each answer [n_turns, width]."""
        loss, _, off, there = self.errors(before, batch, beta=0.1)
        return loss + 4 * (off.sum(0) / there.sum(0).clamp(min=1)).mean()


def pooled(heard: torch.Tensor, owner: torch.Tensor, num: int) -> torch.Tensor:
    """Mean and SD of each turn's embeddings [n_embeddings, width]: [num, 2 * width]."""
    count = torch.bincount(owner, minlength=num)[:, None].float()
    mean = heard.new_zeros(num, heard.shape[1]).index_add(0, owner, heard) / count
    off = (heard - mean[owner]).square()
    var = torch.zeros_like(mean).index_add(0, owner, off) / (count - 1).clamp(min=1)
    return torch.cat([mean, var.clamp(min=1e-8).sqrt()], 1)
