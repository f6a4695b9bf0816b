"""Train the edge on what the cloud would say, so that more of its drafts are accepted."""

import argparse
import random
from pathlib import Path

import torch
import torch.nn.functional as F
from tqdm import tqdm

from pipelines.embedded.data import Composer, Corpus
from pipelines.embedded.evaluate import open_model
from pipelines.embedded.heads import Heads
from pipelines.embedded.joint import note, optimizers, save
from pipelines.embedded.model import SIZES, tower
from pipelines.embedded.prompted import Prompted, describe_batch

# makes the cloud's usual synonym certain, and leaves true doubt between two levels in the entropy
SHARPEN = 0.3


def opened(size: str, path: Path):
    """A run's last.pt, or an exported folder."""
    return open_model(str(path) if path.is_dir() else f"{size}={path}")


def distil(args) -> None:
    """Sequence-level distillation: the cloud's greedy sentence is the target, its softmax along
    it too.

    Short, so an interrupted one starts again; a finished one is left as it is.
    """
    last = args.out / "last.pt"
    if last.exists() and torch.load(last, weights_only=True)["step"] >= args.steps:
        return
    torch.set_num_threads(1)
    edge, cloud, prompted = (
        opened(args.edge_size, args.edge),
        opened(args.cloud_size, args.cloud),
        Prompted(args.edge if args.edge.is_dir() else None),
    )
    edge.train()
    heads = Heads(SIZES[args.edge_size].text_width)
    steppers = optimizers(edge, heads, args.lr)
    composer = Composer(Corpus(*args.data), args.seed, args.noise)
    args.out.mkdir(parents=True, exist_ok=True)
    for step in (bar := tqdm(range(args.steps), desc="distil")):
        rng = random.Random(f"{args.seed}/{step}")
        turns = composer.batch(args.audio_s, rng)
        mels = [torch.from_numpy(turn.mel) for turn in turns]
        language = rng.choice(list(prompted.suffixes))
        told = describe_batch(cloud, prompted, mels, language)
        answers = [torch.tensor([*ids, prompted.end]) for ids in told]
        languages = [language] * len(mels)
        with torch.no_grad():
            flat, counts = tower(cloud.model.audio_tower, mels)
            said = prompted.logits(
                cloud, list(flat.split(counts)), answers, random.Random(0), languages
            )
            wanted = (said / SHARPEN).softmax(-1)
        for group in (g for s in steppers for g in s.param_groups):
            group["lr"] = args.lr * min(1, (step + 1) / 20) * (1 - step / args.steps)
        flat, counts = tower(edge.model.audio_tower, mels)
        logits = prompted.logits(edge, list(flat.split(counts)), answers, rng, languages)
        soft = F.kl_div(logits.log_softmax(-1), wanted, reduction="batchmean")
        hard = F.cross_entropy(logits, torch.cat(answers))
        (soft + args.hard_weight * hard).backward()
        torch.nn.utils.clip_grad_norm_(edge.parameters(), 1.0)
        for stepper in steppers:
            stepper.step()
            stepper.zero_grad(set_to_none=True)
        agree = (logits.argmax(-1) == torch.cat(answers)).float().mean().item()
        figures = {"soft": soft.item(), "hard": hard.item(), "agree": agree}
        note(args.out, {"step": step, **figures})
        bar.set_postfix(soft=f"{soft.item():.3f}", agree=f"{agree:.3f}")
        if step % 50 == 49 or step == args.steps - 1:
            save(args.out, edge, heads, steppers, step + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edge-size", default="edge", choices=list(SIZES))
    parser.add_argument("--cloud-size", default="cloud", choices=list(SIZES))
    parser.add_argument("--edge", type=Path, required=True, help="last.pt, or a model folder")
    parser.add_argument("--cloud", type=Path, required=True, help="last.pt, or a model folder")
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="folders of shards")
    parser.add_argument("--noise", type=Path, help="folder of recorded noise")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--audio-s", type=float, default=100.0)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--hard-weight", type=float, default=0.3)
    parser.add_argument("--seed", type=int, default=5)
    distil(parser.parse_args())


if __name__ == "__main__":
    main()
