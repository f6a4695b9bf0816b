"""Train a tower and a text model together, with heads on the tower, to a checkpoint.

    python -m pipelines.embedded.joint --size edge --data FOLDER... --out RUN --steps 3500

RUN/last.pt is saved every minute, and a run that is started again continues from it. RUN/log.jsonl
holds the learning curve.
"""

import argparse
import copy
import json
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from tokenizers import Tokenizer
from torch import nn
from tqdm import tqdm

from pipelines.embedded.data import Composer, Corpus, Turn
from pipelines.embedded.heads import Heads
from pipelines.embedded.model import SIZES, create, tower
from pipelines.embedded.prompted import Prompted
from pipelines.embedded.tokenizer import build

AVERAGE = 0.995  # of the weights, per step: an average can be used before the rate decays
RELOAD = 200  # steps, after which new shards are found
DECAY = 0.4  # the last share of a run, in which the learning rate goes to zero


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised by Newton-Schulz in `dtype` (torch's own runs in bf16, which is
    slow on a CPU without instructions for it)."""

    def __init__(self, parameters, lr: float, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(parameters, {"lr": lr})
        self.dtype = dtype

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                momentum = state.setdefault("momentum", torch.zeros_like(weight))
                momentum.mul_(0.95).add_(weight.grad)
                update = (weight.grad + 0.95 * momentum).flatten(1)
                flat = update.T if update.shape[0] > update.shape[1] else update
                x = (flat / (flat.norm() + 1e-7)).to(self.dtype)
                for _ in range(5):
                    gram = x @ x.T
                    x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
                x = x.T if update.shape[0] > update.shape[1] else x
                scale = 0.2 * max(update.shape) ** 0.5
                weight.mul_(1 - group["lr"] * 0.01)
                weight.add_(x.float().view_as(weight), alpha=-group["lr"] * scale)


def optimizers(
    model, heads, lr: float, dtype: torch.dtype = torch.float32
) -> list[torch.optim.Optimizer]:
    unused = ("visual", "audio_bos_eos")
    named = [(n, p) for n, p in model.named_parameters() if not any(u in n for u in unused)]
    matrices = [p for n, p in named if p.ndim >= 2 and "embed" not in n and "lm_head" not in n]
    inside = {id(p) for p in matrices}
    others = [p for _, p in named if id(p) not in inside] + list(heads.parameters())
    return [
        Muon(matrices, lr, dtype),
        torch.optim.AdamW(others, lr, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def load_folder(folder: Path) -> dict[str, torch.Tensor]:
    """The fp32 weights of an exported model folder, under the names that training uses."""
    from transformers import Qwen2_5OmniThinkerForConditionalGeneration

    model = Qwen2_5OmniThinkerForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    return model.state_dict()


def warm_start(model, heads, path: Path) -> None:
    """Take every tensor of another run that fits in name and shape: so a tower moves to another
    text model. If a model folder has another tokenizer, the embeddings of equal pieces move."""
    state = {"model": load_folder(path)} if path.is_dir() else torch.load(path, weights_only=True)
    if path.is_dir() and (path / "tokenizer.json").exists():
        old = Tokenizer.from_file(str(path / "tokenizer.json")).get_vocab()
        move_embeddings(state["model"], model.state_dict(), old)
    for module, name in ((model, "model"), (heads, "heads")):
        own = module.state_dict()
        given = state.get(name, {})
        fitting = {k: v for k, v in given.items() if k in own and own[k].shape == v.shape}
        module.load_state_dict(fitting, strict=False)
        for key, weight in own.items():  # layers the other run does not have start as the identity
            is_new = "audio_tower.layers" in key and key not in fitting
            if is_new and ("out_proj" in key or "fc2" in key):
                weight.zero_()
        print(f"{name}: {len(fitting)} of {len(own)} tensors from {path}")


def move_embeddings(
    given: dict[str, torch.Tensor], own: dict[str, torch.Tensor], old: dict[str, int]
) -> None:
    """Give each piece of the recipe's tokenizer its row of `given`, where `old` has the piece."""
    new = build().get_vocab()
    both = [(new[piece], old[piece]) for piece in new if piece in old]
    at, come = (torch.tensor(each) for each in zip(*both, strict=True))
    for name in ("model.language_model.embed_tokens.weight", "lm_head.weight"):
        if name in given and given[name].shape != own[name].shape:
            rows = own[name].clone()
            rows[at] = given[name][come]
            given[name] = rows


@torch.no_grad()
def towards(average: dict[str, torch.Tensor], model, step: int) -> None:
    """Move the average of the weights a step; a young average forgets faster."""
    kept = min(AVERAGE, step / (step + 10))
    for name, weight in model.state_dict().items():
        if weight.is_floating_point():
            average[name].lerp_(weight, 1 - kept)


def save(out: Path, model, heads, steppers, step: int, minutes: float = 0.0, **more) -> None:
    """last.pt, replaced in one rename: a run that is cut off resumes from it."""
    state = {"model": model.state_dict(), "heads": heads.state_dict(), **more}
    state |= {"step": step, "minutes": minutes, "steppers": [s.state_dict() for s in steppers]}
    torch.save(state, out / "new.pt")
    (out / "new.pt").rename(out / "last.pt")


def note(out: Path, row: dict) -> None:
    """Add a row to the run's learning curve."""
    with (out / "log.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def average_gradients(model, heads, world: int) -> None:
    """All processes step with the mean of their gradients, as one with a batch `world` times
    larger."""
    grads = []
    # a silent batch gives some of them no gradient
    for weight in (*model.parameters(), *heads.parameters()):
        weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
        grads.append(weight.grad)
    flat = torch.cat([g.flatten() for g in grads])
    dist.all_reduce(flat)
    for grad, part in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
        grad.copy_(part.view_as(grad) / world)


def both_losses(
    model, heads, prompted: Prompted, turns: list[Turn], rng: random.Random, bf16: bool, said_share
):
    """(loss, figures): of the heads on all turns, and of the sentences on a share of their audio."""
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        flat, counts = tower(model.model.audio_tower, [torch.from_numpy(t.mel) for t in turns])
    embeddings = list(flat.float().split(counts))
    heard, right = heads(embeddings, turns)
    wanted, chosen = said_share * sum(counts), []
    for i in rng.sample(range(len(turns)), len(turns)):
        if counts[i] <= wanted or rng.random() < wanted / counts[i]:
            chosen.append(i)
        wanted = max(0, wanted - counts[i])
    figures = {"heard": heard.item(), "turns": len(turns), "seconds": 0.04 * sum(counts), **right}
    if not chosen:
        return heard, figures | {"said": np.nan, "tokens": np.nan}
    heard_of = [embeddings[i] for i in chosen]
    said, tokens = prompted.loss(model, heard_of, [turns[i] for i in chosen], rng)
    return said + heard, {"said": said.item(), "tokens": tokens, **figures}


class Run:
    """A model, its heads and optimisers: new, from another run, or from its own last.pt."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.out = args.out
        self.model = create(SIZES[args.size], args.seed)
        self.heads = Heads(SIZES[args.size].text_width)
        dtype = torch.bfloat16 if args.bf16 else torch.float32
        self.steppers = optimizers(self.model, self.heads, args.lr, dtype)
        self.step, self.minutes = 0, 0.0
        last = args.out / "last.pt"
        if last.exists():
            self.average = self._restore(torch.load(last, weights_only=True))
        else:
            if args.init:
                warm_start(self.model, self.heads, args.init)
            self.average = copy.deepcopy(self.model.state_dict())

    def _restore(self, state: dict) -> dict[str, torch.Tensor]:
        self.model.load_state_dict(state["model"])
        self.heads.load_state_dict(state["heads"])
        for stepper, own in zip(self.steppers, state["steppers"], strict=True):
            stepper.load_state_dict(own)
        self.step, self.minutes = state["step"], state.get("minutes", 0.0)
        return state["average"]

    def descend(self, loss: torch.Tensor, lr: float, world: int) -> None:
        """One step of both optimisers, with the mean gradient of `world` processes."""
        loss.backward()
        if world > 1:
            average_gradients(self.model, self.heads, world)
        parameters = [*self.model.parameters(), *self.heads.parameters()]
        nn.utils.clip_grad_norm_(parameters, 1.0)
        for stepper in self.steppers:
            for group in stepper.param_groups:
                group["lr"] = lr
            stepper.step()
            stepper.zero_grad(set_to_none=True)
        towards(self.average, self.model, self.step)

    def save(self) -> None:
        more = {"average": self.average}
        save(self.out, self.model, self.heads, self.steppers, self.step, self.minutes, **more)


def train(rank: int, args: argparse.Namespace) -> None:
    torch.set_num_threads(1)  # several processes of one thread beat one of several
    if args.world > 1:
        store = dist.FileStore(str(args.out / f"store-{args.store}"), args.world)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=args.world)
    run, prompted = Run(args), Prompted()
    composer = Composer(Corpus(*args.data), args.seed, args.noise)
    earlier, began = run.minutes, time.monotonic()
    saved = began
    steps = range(run.step, args.steps)
    bar = tqdm(steps, initial=run.step, total=args.steps, desc=args.size, disable=rank > 0)
    for step in bar:
        if step % RELOAD == RELOAD - 1:
            composer = Composer(Corpus(*args.data), args.seed, args.noise)
        rng = random.Random(f"{args.seed}/{step}/{rank}")
        run.minutes = earlier + (time.monotonic() - began) / 60
        left = 1 - max(step / args.steps, run.minutes / args.minutes)
        scale = min(1, (step + 1) / 30) * min(1.0, max(0.02, left / DECAY))
        share = args.said_share if left > DECAY else max(args.said_share, args.said_last)
        turns = composer.batch(args.audio_s, rng)
        loss, found = both_losses(run.model, run.heads, prompted, turns, rng, args.bf16, share)
        run.descend(loss, args.lr * scale, args.world)
        run.step = step + 1
        if rank:
            continue
        note(args.out, {"step": step, "minutes": round(run.minutes, 2), **found})
        bar.set_postfix(said=f"{found['said']:.3f}", heard=f"{found['heard']:.3f}")
        if time.monotonic() - saved > 60 or run.step == args.steps or left <= 0:
            saved = time.monotonic()
            run.save()
        if left <= 0:
            break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=list(SIZES), required=True)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="folders of shards")
    parser.add_argument("--noise", type=Path, help="folder of recorded noise")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--init", type=Path, help="another run's last.pt, or an exported folder")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop then, if steps are left")
    parser.add_argument("--audio-s", type=float, default=120.0)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument(
        "--said-share", type=float, default=1.0, help="of the audio, that sentences are learnt from"
    )
    parser.add_argument(
        "--said-last", type=float, default=0.0, help="the same while the learning rate decays"
    )
    parser.add_argument(
        "--bf16",
        action="store_true",
        help="matrices of the tower in bf16, if the CPU multiplies it",
    )
    parser.add_argument(
        "--world", type=int, default=1, help="processes that average their gradients"
    )
    parser.add_argument("--rank", type=int, help="set by the first process for the others")
    parser.add_argument("--store", help="set by the first process: where the others meet")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.world > 1 and args.minutes < 1e9:
        parser.error("--minutes is for one process: several would stop at different steps")
    args.out.mkdir(parents=True, exist_ok=True)
    if args.world > 1 and args.rank is None:
        again = [sys.executable, "-m", "pipelines.embedded.joint", *sys.argv[1:]]
        again += ["--store", str(time.time_ns())]
        ranks = [subprocess.Popen([*again, "--rank", str(rank)]) for rank in range(args.world)]
        sys.exit(max([process.wait() for process in ranks]))
    train(args.rank or 0, args)


if __name__ == "__main__":
    main()
