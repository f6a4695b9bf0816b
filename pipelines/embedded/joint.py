"""Train both models on the same turns: towers and text models, with heads on the towers.

    python -m pipelines.embedded.joint --data FOLDER... --out RUNS --steps 3500

RUNS/edge/last.pt and RUNS/cloud/last.pt are saved every minute, and a run that is started again
continues from them. RUNS/log.jsonl holds the learning curves. In the last part of a run the edge
also learns the cloud's sharpened softmax, so that more of its drafts are accepted.
"""

import argparse
import copy
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from tqdm import tqdm

from pipelines.embedded.batches import Batch, Batches, loader
from pipelines.embedded.heads import Asked, Heads
from pipelines.embedded.labels import ATTRIBUTES
from pipelines.embedded.model import SIZES, create, tower
from pipelines.embedded.prompted import logits
from streamer.model.engines.load import load_stock

AVERAGE = 0.995  # of the weights, per step: an average can be used before the rate decays
DECAY = 0.4  # the last share of a run, in which the learning rate goes to zero
DISTIL = 0.4  # the last share, in which the edge learns the cloud's softmax, too
WARM = 50  # steps in which it rises
# makes the cloud's usual synonym certain, and leaves true doubt between two levels
SHARPEN, HARD = 0.3, 0.3
NOTE = 20  # steps between two rows of the log


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised by Newton-Schulz, all weights of one shape at once (torch's own runs
    in bf16, which is slow on a CPU without instructions for it)."""

    def __init__(self, parameters, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            alike: dict[torch.Size, list[torch.Tensor]] = {}
            for weight in group["params"]:
                if weight.grad is not None:
                    alike.setdefault(weight.shape, []).append(weight)
            for weights in alike.values():
                self._step(weights, group["lr"])

    def _step(self, weights: list[torch.Tensor], lr: float) -> None:
        grads = [weight.grad for weight in weights]
        momenta = [
            self.state[weight].setdefault("momentum", torch.zeros_like(weight))
            for weight in weights
        ]
        torch._foreach_mul_(momenta, 0.95)
        torch._foreach_add_(momenta, grads)
        update = torch.stack(torch._foreach_add(grads, momenta, alpha=0.95)).flatten(2)
        scale = 0.2 * max(update.shape[1:]) ** 0.5
        update = orthogonal(update).unflatten(2, weights[0].shape[1:])
        torch._foreach_mul_(weights, 1 - lr * 0.01)
        torch._foreach_add_(weights, list(update), alpha=-lr * scale)


def orthogonal(x: torch.Tensor) -> torch.Tensor:
    """The nearest half-orthogonal matrices of [n, rows, columns], nearly."""
    is_tall = x.shape[1] > x.shape[2]
    x = x.mT if is_tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if is_tall else x


def optimizers(model, heads: list[nn.Parameter], lr: float) -> list[torch.optim.Optimizer]:
    unused = ("visual", "audio_bos_eos")
    named = [(n, p) for n, p in model.named_parameters() if not any(u in n for u in unused)]
    matrices = [p for n, p in named if p.ndim >= 2 and "embed" not in n and "lm_head" not in n]
    inside = {id(p) for p in matrices}
    others = [p for _, p in named if id(p) not in inside] + heads
    return [Muon(matrices, lr), torch.optim.AdamW(others, lr, betas=(0.9, 0.98), weight_decay=0.0)]


class Run:
    """A model, its heads and optimisers: new, from an exported folder, or from its own last.pt."""

    def __init__(self, size: str, args: argparse.Namespace) -> None:
        self.out = args.out / size
        self.out.mkdir(parents=True, exist_ok=True)
        self.model, width = create(SIZES[size], args.seed), SIZES[size].text_width
        if args.init:
            self.model.load_state_dict(load_stock(args.init / size).state_dict())
        self.heads, self.asked = Heads(width), Asked(width)
        self.average = copy.deepcopy(self.model).requires_grad_(False)
        parts = {"model": self.model, "heads": self.heads, "asked": self.asked}
        self.parts = nn.ModuleDict(parts | {"average": self.average}).to(args.device)
        heads = [*self.heads.parameters(), *self.asked.parameters()]
        self.steppers = optimizers(self.model, heads, args.lr)
        self.step, self.minutes = 0, 0.0
        if (self.out / "last.pt").exists():
            self._restore(torch.load(self.out / "last.pt", args.device, weights_only=True))

    def _restore(self, state: dict) -> None:
        for name, part in self.parts.items():
            part.load_state_dict(state[name])
        for stepper, own in zip(self.steppers, state["steppers"], strict=True):
            stepper.load_state_dict(own)
        self.step, self.minutes = state["step"], state["minutes"]

    def learn(self, batch: Batch, lr: float, wanted: torch.Tensor | None) -> torch.Tensor:
        """One step. `wanted`: probabilities of another model before each known id [n, vocabulary],
        which this one learns, too. Returns its own logits there; `self.figures` tells the rest."""
        audio = self.model.model.audio_tower
        heard = tower(audio, batch.windows.float(), batch.lengths)
        before, said = logits(self.model, heard, batch.rows)
        said, target = said[batch.rows.known], batch.rows.target[batch.rows.known]
        spoken = F.cross_entropy(said, target)
        loss, right = self.heads(heard, batch)
        loss = 0.5 * loss + 0.7 * self.asked(before, batch)
        if wanted is None:
            loss = loss + spoken
        else:
            soft = F.kl_div(said.log_softmax(-1), wanted, reduction="batchmean")
            loss = loss + soft + HARD * spoken
        self._descend(loss, lr)
        tokens = (said.argmax(-1) == target).float().mean()
        self.figures = torch.stack([loss.detach(), spoken.detach(), tokens, *right.detach()])
        return said.detach()

    def _descend(self, loss: torch.Tensor, lr: float) -> None:
        loss.backward()
        nn.utils.clip_grad_norm_(self.parts.parameters(), 1.0)
        for stepper in self.steppers:
            for group in stepper.param_groups:
                group["lr"] = lr
            stepper.step()
            stepper.zero_grad(set_to_none=True)
        self.step += 1
        kept = min(AVERAGE, self.step / (self.step + 10))  # a young average forgets faster
        with torch.no_grad():
            own, average = list(self.model.parameters()), list(self.average.parameters())
            torch._foreach_lerp_(average, own, 1 - kept)

    def told(self) -> dict[str, float]:
        """The figures of the last step, for the log."""
        names = ("loss", "said", "tokens", *ATTRIBUTES)
        return dict(zip(names, map(float, self.figures.tolist()), strict=True))

    def save(self) -> None:
        """last.pt, replaced in one rename: a run that is cut off continues from it."""
        state = {name: part.state_dict() for name, part in self.parts.items()}
        state |= {"step": self.step, "minutes": self.minutes}
        state["steppers"] = [stepper.state_dict() for stepper in self.steppers]
        torch.save(state, self.out / "new.pt")
        (self.out / "new.pt").rename(self.out / "last.pt")


def train(args: argparse.Namespace) -> None:
    cloud, edge = (Run(size, args) for size in ("cloud", "edge"))
    if cloud.step >= args.steps:
        return
    batches = Batches(args.data, args.noise, args.audio_s, args.seed, cloud.step)
    turns = iter(loader(batches, args.workers, torch.device(args.device)))
    earlier, began = cloud.minutes, time.monotonic()
    saved, left = began, 1.0
    bar = tqdm(initial=cloud.step, total=args.steps, desc="joint")
    while left > 0:
        batch = next(turns).to(torch.device(args.device))
        scale = min(1.0, (cloud.step + 1) / WARM, max(0.02, left / DECAY))
        said = cloud.learn(batch, args.lr * scale, None)
        teaches = left < DISTIL
        edge.learn(batch, args.lr * scale, (said / SHARPEN).softmax(-1) if teaches else None)
        bar.update()
        cloud.minutes = edge.minutes = earlier + (time.monotonic() - began) / 60
        left = 1 - max(cloud.step / args.steps, cloud.minutes / args.minutes)
        if cloud.step % NOTE == 0 or left <= 0:
            note(args.out, cloud, edge, bar)
        if time.monotonic() - saved > 60 or left <= 0:
            saved = time.monotonic()
            cloud.save()
            edge.save()


def note(out: Path, cloud: Run, edge: Run, bar: tqdm) -> None:
    """Add a row to the learning curves."""
    row = {"step": cloud.step, "minutes": round(cloud.minutes, 2)}
    told = {"cloud": cloud.told(), "edge": edge.told()}
    with (out / "log.jsonl").open("a") as file:
        file.write(json.dumps(row | told) + "\n")
    bar.set_postfix({name: f"{figures['said']:.3f}" for name, figures in told.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="folders of shards")
    parser.add_argument("--noise", type=Path, help="folder of recorded noise")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--init", type=Path, help="a folder with exported models edge and cloud")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop then, if steps are left")
    parser.add_argument("--audio-s", type=float, default=120.0, help="seconds of audio in a step")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--device", default="cpu", help="or cuda")
    parser.add_argument("--workers", type=int, default=1, help="processes that compose turns")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.backends.cuda.enable_cudnn_sdp(False)  # it plans each new shape anew
    torch.multiprocessing.set_sharing_strategy("file_system")  # few open files for many batches
    train(args)


if __name__ == "__main__":
    main()
