"""Batches of turns as tensors, composed by worker processes while a model learns."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from pipelines.embedded.corpus import Corpus
from pipelines.embedded.data import Composer, Turn
from pipelines.embedded.labels import ATTRIBUTES
from pipelines.embedded.model import in_windows
from pipelines.embedded.prompted import Prompted, Rows

RELOAD = 200  # batches of a worker, after which it finds new shards
AHEAD = 4  # batches that each worker has ready
UNKNOWN = -1


class Batch(NamedTuple):
    """Some turns. n_embeddings counts those of all turns, one every 40 ms."""

    windows: torch.Tensor  # [n_windows, 200, 128] float16, normalised log-mel
    lengths: torch.Tensor  # [n_windows] frames
    owner: torch.Tensor  # [n_embeddings] the turn of each
    # [n_embeddings, 7] of the clean signal: voiced, f0 in Hz, whether the tempo is known, syllables
    # per second of the phrase, speech, syllables (nan where not counted), level in dBFS
    frames: torch.Tensor
    levels: torch.Tensor  # [n_turns, 7], UNKNOWN where no label is
    measures: torch.Tensor  # [n_turns, 7] float32, nan where not measured
    rows: Rows

    def to(self, device: torch.device) -> Self:
        moved = [x.to(device, non_blocking=True) for x in self[:-1]]
        rows = Rows(*(x.to(device, non_blocking=True) for x in self.rows))
        return type(self)(*moved, rows)


def frame_targets(tracks: np.ndarray, num: int) -> np.ndarray:
    """`tracks` [n_frames, 5] of a turn, in steps of 40 ms: [num, 7] as in Batch."""
    tracks = np.pad(tracks, ((0, 4), (0, 0)))[: 4 * num].reshape(num, 4, 5)
    counts = (tracks[..., :3] > 0).sum(1)
    there = counts >= 2
    mean = tracks[..., :2].sum(1) / np.maximum(counts[:, :2], 1)
    syllables, level = tracks[..., 3].sum(1), tracks[..., 4].mean(1)
    columns = [there[:, 0], mean[:, 0], there[:, 1], mean[:, 1], there[:, 2], syllables, level]
    return np.stack(columns, 1).astype(np.float32)


def batch_of(turns: list[Turn], prompted: Prompted, rng: random.Random) -> Batch:
    windows, lengths, counts = in_windows([torch.from_numpy(turn.mel) for turn in turns])
    frames = [frame_targets(t.tracks, n) for t, n in zip(turns, counts, strict=True)]
    levels = torch.full((len(turns), len(ATTRIBUTES)), UNKNOWN)
    measures = torch.full((len(turns), len(ATTRIBUTES)), torch.nan)
    for i, turn in enumerate(turns):
        if turn.levels and turn.measures:
            known = [turn.levels[name] for name in ATTRIBUTES]
            levels[i] = torch.tensor([UNKNOWN if n is None else n for n in known])
            measures[i] = torch.from_numpy(turn.measures.vector())
    return Batch(
        windows.half(),
        lengths,
        torch.arange(len(turns)).repeat_interleave(torch.tensor(counts)),
        torch.from_numpy(np.concatenate(frames)),
        levels,
        measures,
        prompted.answers(turns, counts, rng),
    )


class Batches(IterableDataset):
    """Batches number `first`, `first + 1`, ... of about `audio_s` seconds. One is the same
    whenever it is made from the same shards."""

    def __init__(
        self, data: list[Path], noise: Path | None, audio_s: float, seed: int, first: int = 0
    ) -> None:
        self.data, self.noise, self.audio_s = data, noise, audio_s
        self.seed, self.first = seed, first

    def __iter__(self) -> Iterator[Batch]:
        torch.set_num_threads(1)
        worker = get_worker_info()
        place, step = (worker.id, worker.num_workers) if worker else (0, 1)
        prompted, number, made = Prompted(), self.first + place, 0
        while True:
            if made % RELOAD == 0:
                composer = Composer(Corpus(*self.data), self.seed, self.noise)
            rng = random.Random(f"{self.seed}/{number}")
            yield batch_of(composer.batch(self.audio_s, rng), prompted, rng)
            number, made = number + step, made + 1


def loader(batches: Batches, workers: int, device: torch.device) -> DataLoader:
    """Batches in order, composed by `workers` processes; 0 composes in this one."""
    more = {"prefetch_factor": AHEAD} if workers else {}
    pinned = device.type == "cuda"
    return DataLoader(batches, batch_size=None, num_workers=workers, pin_memory=pinned, **more)
