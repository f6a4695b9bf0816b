"""Train a tower and a text model together, with heads on the pooled tower, to a checkpoint."""

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
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import nn
from tqdm import tqdm

from pipelines.embedded.data import Composer, Corpus, Turn
from pipelines.embedded.export import spoken as spoken_in
from pipelines.embedded.labels import ATTRIBUTES, NUM_LEVELS
from pipelines.embedded.model import SIZES, create, hidden_states, tower
from pipelines.embedded.sentences import LANGUAGES, MARKS
from pipelines.embedded.tokenizer import build
from streamer.core.attributes import parse

AVERAGE = 0.995  # of the weights, per step: an average can be used before the rate decays
RELOAD = 200  # steps, after which new shards are found
DECAY = 0.4  # the last share of a run, in which the learning rate goes to zero
COUNT, LEVEL = 6.0, 0.5  # weights of the syllables and the level of frames
TEMPO = 3.0  # weight of the tempo track: of all that is heard it is learnt the slowest


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


class Prompted:
    """Turns into padded rows of prefix, audio, suffix, answer; and the loss on the answer."""

    def __init__(self, folder: Path | None = None) -> None:
        """folder: a model whose own tokenizer, prompts and phrases are taken; else the recipe's."""
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json")) if folder else build()
        card = json.loads((folder / "streamer.json").read_text("utf-8")) if folder else None
        spoken = card_languages(card) if card else {name: spoken_in(name) for name in LANGUAGES}
        self.prefix = self._ids(spoken["zh"]["prompt"]["prefix"])
        self.suffixes = {name: self._ids(of["prompt"]["suffix"]) for name, of in spoken.items()}
        self.phrases = {name: of["attributes"] for name, of in spoken.items()}
        self.no_speech = spoken["zh"]["no_speech"]
        self.end = self.tokenizer.token_to_id("<|im_end|>")

    def _ids(self, text: str) -> torch.Tensor:
        return torch.tensor(self.tokenizer.encode(text).ids)

    def levels(self, text: str, language: str = "zh") -> dict[str, int | None]:
        """The level of each attribute that a sentence names; None for the others."""
        return parse(text, self.phrases[language])

    def answer(self, turn: Turn) -> torch.Tensor:
        return torch.tensor([*self.tokenizer.encode("".join(turn.words)).ids, self.end])

    def logits(
        self,
        model,
        embeddings: list[torch.Tensor],
        answers: list[torch.Tensor],
        rng: random.Random,
        languages: list[str] | None = None,
    ):
        """What the model says before each id of the answers, [total ids, vocabulary]. languages: of
        each answer; Chinese where none is given."""
        embed = model.model.language_model.embed_tokens
        rows, at, jumps = [], [], []
        for i, (audio, answer) in enumerate(zip(embeddings, answers, strict=True)):
            suffix = self.suffixes[languages[i] if languages else "zh"]
            start = len(self.prefix) + len(audio) + len(suffix) - 1
            parts = [embed(self.prefix), audio, embed(suffix), embed(answer[:-1])]
            rows.append(torch.cat(parts))
            at.append(torch.arange(start, start + len(answer)))
            room = max(0, 1500 - len(audio))
            jumps_here = rng.random() < 0.25
            jumps.append((rng.randrange(2, start), rng.randint(0, room)) if jumps_here else (0, 0))
        hidden = hidden_states(model, rows, jumps)
        return model.lm_head(torch.cat([hidden[i, a] for i, a in enumerate(at)]))

    def known(self, turn: Turn) -> torch.Tensor:
        """Which ids of the answer count: those that say a level nobody knows do not."""
        unknown = {name for name, level in (turn.levels or {}).items() if level is None}
        marks: list[bool] = []
        for clause in clauses(turn.words):
            levels = self.levels("".join(clause), turn.language)
            said = {name for name, level in levels.items() if level is not None}
            number = len(self.tokenizer.encode("".join(clause)).ids)
            marks += [not said & unknown] * number
        return torch.tensor([*marks, True])

    def loss(self, model, embeddings, turns: list[Turn], rng: random.Random):
        """Mean cross-entropy over answer ids that are known, and the share that is predicted
        right."""
        answers = [self.answer(turn) for turn in turns]
        counts = torch.cat([self.known(turn) for turn in turns])
        languages = [turn.language for turn in turns]
        logits = self.logits(model, embeddings, answers, rng, languages)[counts]
        target = torch.cat(answers)[counts]
        right = (logits.argmax(-1) == target).float().mean().item()
        return F.cross_entropy(logits, target), right


def card_languages(card: dict) -> dict[str, dict]:
    """What a streamer.json says for each language, as `export.spoken` gives it."""
    return {card.get("language", "zh"): card, **card.get("languages", {})}


def clauses(words: list[str]) -> list[list[str]]:
    """A sentence's words up to each comma or full stop."""
    parts: list[list[str]] = [[]]
    for word in words:
        parts[-1].append(word)
        if word in MARKS:
            parts.append([])
    return parts[:-1]


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
    text model. Of a model folder with another tokenizer, the embeddings of equal pieces move."""
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
    model, heads, prompted: Prompted, turns: list[Turn], rng: random.Random, args, said_share
):
    """What the tower hears on all turns, and what is said on a share of their audio: (loss,
    figures)."""
    with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
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
        return args.heads_weight * heard, figures
    heard_of = [embeddings[i] for i in chosen]
    said, tokens = prompted.loss(model, heard_of, [turns[i] for i in chosen], rng)
    return said + args.heads_weight * heard, {"said": said.item(), "tokens": tokens, **figures}


def mean_of(rows: list[dict[str, float]]) -> dict[str, float]:
    """Mean of each figure over the rows that have it."""
    names = {name for row in rows for name in row} | {"said", "tokens"}
    return {n: float(np.mean([r[n] for r in rows if n in r] or [np.nan])) for n in sorted(names)}


def train(rank: int, args) -> None:
    torch.set_num_threads(1)  # several processes of one thread beat one of several
    if args.world > 1:
        store = dist.FileStore(str(args.out / f"store-{args.store}"), args.world)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=args.world)
    model, prompted = create(SIZES[args.size], args.seed), Prompted()
    heads = Heads(SIZES[args.size].text_width)
    dtype = torch.bfloat16 if args.bf16 else torch.float32
    steppers = optimizers(model, heads, args.lr, dtype)
    last, first_step, earlier = args.out / "last.pt", 0, 0.0
    if last.exists():
        state = torch.load(last, weights_only=True)
        model.load_state_dict(state["model"])
        heads.load_state_dict(state["heads"])
        first_step, earlier = state["step"], state.get("minutes", 0.0)
        for stepper, saved_state in zip(steppers, state["steppers"], strict=True):
            stepper.load_state_dict(saved_state)
    elif args.init:
        warm_start(model, heads, args.init)
    average = state["average"] if last.exists() else copy.deepcopy(model.state_dict())
    composer = Composer(Corpus(*args.data), args.seed, args.noise)
    log, saved = (args.out / "log.jsonl").open("a"), time.monotonic()
    began = time.monotonic()
    steps = range(first_step, args.steps)
    bar = tqdm(steps, initial=first_step, total=args.steps, desc=args.size, disable=rank > 0)
    for step in bar:
        if step % RELOAD == RELOAD - 1:
            composer = Composer(Corpus(*args.data), args.seed, args.noise)
        rng = random.Random(f"{args.seed}/{step}/{rank}")
        minutes = earlier + (time.monotonic() - began) / 60
        left = 1 - max(step / args.steps, minutes / args.minutes)
        scale = min(1, (step + 1) / 30) * min(1.0, max(0.02, left / DECAY))
        said_share = args.said_share if left > DECAY else max(args.said_share, args.said_last)
        for group in (g for s in steppers for g in s.param_groups):
            group["lr"] = args.lr * scale
        rows = []
        for _ in range(args.accumulate):
            turns = composer.batch(args.audio_s, rng)
            loss, found = both_losses(model, heads, prompted, turns, rng, args, said_share)
            (loss / args.accumulate).backward()
            rows.append(found)
        if args.world > 1:
            average_gradients(model, heads, args.world)
        nn.utils.clip_grad_norm_([*model.parameters(), *heads.parameters()], 1.0)
        for stepper in steppers:
            stepper.step()
            stepper.zero_grad(set_to_none=True)
        towards(average, model, step)
        if rank:
            continue
        row = {"step": step, "minutes": round(minutes, 2), **mean_of(rows)}
        log.write(json.dumps(row) + "\n")
        log.flush()
        bar.set_postfix(said=f"{row['said']:.3f}", heard=f"{row['heard']:.3f}")
        if time.monotonic() - saved > 60 or step == args.steps - 1 or left <= 0:
            saved = time.monotonic()
            save(args.out, model, heads, steppers, step + 1, minutes, average=average)
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
    parser.add_argument("--accumulate", type=int, default=1, help="batches of one step")
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
    parser.add_argument("--heads-weight", type=float, default=1.0)
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
