"""Heads that teach the tower: levels and measures of a turn, and six targets every 40 ms."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from pipelines.embedded.data import Turn
from pipelines.embedded.labels import ATTRIBUTES, NUM_LEVELS

COUNT, LEVEL = 6.0, 0.5  # weights of the syllables and the level of frames
TEMPO = 3.0  # weight of the tempo track, which is learnt the slowest


class Heads(nn.Module):
    """Classes and measures read from mean and SD over a turn's embeddings: they teach the tower
    what to hear."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(2 * width, 2 * width)
        classes = {name: nn.Linear(2 * width, n) for name, n in NUM_LEVELS.items()}
        self.classes = nn.ModuleDict(classes)
        self.measures = nn.Linear(2 * width, len(ATTRIBUTES))
        # every 40 ms: voiced, f0, syllables per second of the phrase, speech, syllables, level
        self.frames = nn.Linear(width, 6)

    def frame_loss(self, embeddings: list[torch.Tensor], turns: list[Turn]) -> torch.Tensor:
        """Pitch, tempo, speech, syllables and level frame by frame, of the clean signal: targets
        pooled over a turn teach the tower these slowly."""
        read = self.frames(torch.cat(embeddings))
        tracks = [
            np.pad(t.tracks, ((0, 4), (0, 0)))[: 4 * len(e)]
            for t, e in zip(turns, embeddings, strict=True)
        ]
        tracks = np.concatenate(tracks).reshape(-1, 4, 5)
        counts = (tracks[..., :3] > 0).sum(1)
        there = torch.from_numpy(counts >= 2).float()
        mean = torch.from_numpy(tracks[..., :2].sum(1) / np.maximum(counts[:, :2], 1)).float()
        target = 2 * torch.log2(mean.clamp(min=1.0) / torch.tensor([160.0, 4.9]))
        off = F.smooth_l1_loss(read[:, 1:3], target, reduction="none", beta=0.2) * there[:, :2]
        off = off.sum(0) / there[:, :2].sum(0).clamp(min=1)
        off = off[0] + TEMPO * off[1]
        flags = F.binary_cross_entropy_with_logits(read[:, (0, 3)], there[:, (0, 2)])
        return off + 2 * flags + self._counted(read, torch.from_numpy(tracks), there[:, 2])

    def _counted(
        self, read: torch.Tensor, tracks: torch.Tensor, speaks: torch.Tensor
    ) -> torch.Tensor:
        """Loss of syllables and level [n, 4, 5] in frames of speech [n]."""
        syllables = tracks[..., 3].sum(1).float()
        counted = (~syllables.isnan()).float() * (speaks + 0.1)
        off = F.softplus(read[:, 4]) - torch.nan_to_num(syllables)
        # syllables of half a second: where exactly each lies matters less than how many there are
        near = F.avg_pool1d((off * (counted > 0))[None, None], 13, 1, 6)[0, 0]
        density = ((near.abs() + 0.3 * off.abs()) * counted).sum() / counted.sum().clamp(min=1)
        level = (tracks[..., 4].mean(1).float().clamp(-60, 0) + 30) / 10
        loud = F.smooth_l1_loss(read[:, 5], level, reduction="none", beta=0.2) * speaks
        return COUNT * density + LEVEL * loud.sum() / speaks.sum().clamp(min=1)

    def forward(
        self, embeddings: list[torch.Tensor], turns: list[Turn]
    ) -> tuple[torch.Tensor, dict[str, float]]:
        pooled = torch.stack([torch.cat([e.mean(0), e.std(0)]) for e in embeddings])
        hidden = F.gelu(self.hidden(pooled))
        spoken = [i for i, turn in enumerate(turns) if turn.levels]
        if not spoken:
            return pooled.sum() * 0, {}
        loss, right = torch.zeros(()), {}
        for name, head in self.classes.items():
            known = [i for i in spoken if turns[i].levels[name] is not None]
            if not known:
                continue
            target = torch.tensor([turns[i].levels[name] for i in known])
            logits = head(hidden[known])
            loss = loss + F.cross_entropy(logits, target)
            right[name] = (logits.argmax(-1) == target).float().mean().item()
        vectors = np.stack([turns[i].measures.vector() for i in spoken])
        there = torch.from_numpy(~np.isnan(vectors)).float()
        measures = torch.from_numpy(np.nan_to_num(vectors)).clamp(-3, 3)
        off = F.smooth_l1_loss(self.measures(hidden[spoken]), measures, reduction="none") * there
        return loss / 7 + off.sum() / there.sum() + 0.5 * self.frame_loss(embeddings, turns), right
