"""A larger network that counts syllables, and what several networks count, as targets.

    python -m pipelines.embedded.rate_teacher --data DIR/rate --runs RUN [RUN ...]

`Teacher` is a conformer (Gulati and others, 2020) of 8 M weights that hears 2 s on either side; it
is too slow to ship. The command writes the mean count of `rate_fit`'s runs for each frame beside
the clips, as FILE.taught.npy. `rate_fit train` then learns these too: clips in noise get the count
of the clean ones, and a text that was not read as written does less harm.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from pipelines.embedded.phones import CLASSES
from pipelines.embedded.rate_net import begun, padded
from streamer.core.measures.density import NUM_BANDS, STEP_FRAMES

WIDTH, HEADS, LAYERS = 256, 4, 6
KERNEL = 15  # steps of the depthwise convolution
REACH = 64  # steps that attention looks to either side
DROP = 0.1
BATCH = 16


class Teacher(nn.Module):
    """Steps [batch, n, STEP_FRAMES * NUM_BANDS] to what `rate_net.Net` returns."""

    def __init__(self) -> None:
        super().__init__()
        self.inp = nn.Conv1d(STEP_FRAMES * NUM_BANDS, WIDTH, 5, padding=2)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, len(CLASSES) + 1)
        nn.init.constant_(self.head.bias[-1], -1.9)  # about five syllables/s

    def forward(self, steps: Tensor, here: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.inp(steps.transpose(1, 2)).transpose(1, 2)
        at = torch.arange(hidden.shape[1])
        near = (at[:, None] - at).abs() <= REACH
        seen = (near & (here[:, None] > 0)) | torch.eye(len(at), dtype=torch.bool)
        for block in self.blocks:
            hidden = block(hidden, here, seen[:, None])
        said = self.head(self.norm(hidden))
        return said[..., :-1].log_softmax(-1), F.softplus(said[..., -1])


def feed_forward() -> nn.Sequential:
    wide = (nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.SiLU(), nn.Dropout(DROP))
    return nn.Sequential(*wide, nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(DROP))


class Block(nn.Module):
    """Half a feed-forward, attention, convolution, half a feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.f1, self.f2 = feed_forward(), feed_forward()
        self.an, self.qkv = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.ao, self.bias = (
            nn.Linear(WIDTH, WIDTH),
            nn.Parameter(torch.zeros(HEADS, 2 * REACH + 1)),
        )
        self.cn, self.c1 = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.dw = nn.Conv1d(WIDTH, WIDTH, KERNEL, padding=KERNEL // 2, groups=WIDTH)
        self.bn, self.c2 = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.drop, self.out = nn.Dropout(DROP), nn.LayerNorm(WIDTH)

    def forward(self, hidden: Tensor, here: Tensor, seen: Tensor) -> Tensor:
        hidden = hidden + 0.5 * self.f1(hidden)
        hidden = hidden + self.drop(self._attended(hidden, seen))
        sound = F.glu(self.c1(self.cn(hidden)), -1) * here[..., None]
        sound = F.silu(self.bn(self.dw(sound.transpose(1, 2)).transpose(1, 2)))
        hidden = hidden + self.drop(self.c2(sound))
        return self.out(hidden + 0.5 * self.f2(hidden))

    def _attended(self, hidden: Tensor, seen: Tensor) -> Tensor:
        batch, num, _ = hidden.shape
        parts = self.qkv(self.an(hidden)).view(batch, num, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        at = torch.arange(num)
        apart = (at - at[:, None]).clamp(-REACH, REACH) + REACH
        bias = self.bias[:, apart][None].masked_fill(~seen, -1e4)
        found = F.scaled_dot_product_attention(*parts, attn_mask=bias)
        return self.ao(found.transpose(1, 2).reshape(batch, num, -1))


@torch.no_grad()
def taught(runs: list[tuple[nn.Module, np.ndarray]], clips: list[np.ndarray]) -> list[np.ndarray]:
    """The mean count of networks with their mixtures in each frame of clips [n, NUM_BANDS]."""
    zeros = [np.zeros((len(bands), 2)) for bands in clips]
    steps, here, _ = padded([(b.astype(np.float32), z) for b, z in zip(clips, zeros, strict=True)])
    total = torch.zeros_like(here)
    for net, (of_nuclei, of_density) in runs:
        said, density = net(steps, here)
        total += of_nuclei * begun(said) + of_density * density
    frames = np.repeat(total.numpy() / len(runs) / STEP_FRAMES, STEP_FRAMES, 1)
    return [frame[: len(bands)] for frame, bands in zip(frames, clips, strict=True)]


def write(listing: Path, runs: list[tuple[nn.Module, np.ndarray]]) -> None:
    bands = np.load(listing.with_suffix(".bands.npy"), mmap_mode="r")
    ends = [row["end"] for row in json.loads(listing.read_text("utf-8"))]
    places = [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]
    found = np.zeros(ends[-1], np.float16)
    places.sort(key=lambda at: at.stop - at.start)
    for first in range(0, len(places), BATCH):
        some = places[first : first + BATCH]
        for at, counted in zip(some, taught(runs, [bands[at] for at in some]), strict=True):
            found[at] = counted
    np.save(listing.with_suffix(".taught.npy"), found)


def main() -> None:
    from pipelines.embedded.rate_fit import opened

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=Path, nargs="+", required=True)
    args = parser.parse_args()
    runs = [(opened(run), np.load(run / "mixture.npy")) for run in args.runs]
    for listing in tqdm(sorted(args.data.glob("*.json")), desc="taught"):
        write(listing, runs)


if __name__ == "__main__":
    main()
