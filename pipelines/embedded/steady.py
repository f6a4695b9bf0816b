"""In: a shipped edge, clones of recordings. Out: the edge, trained on to say of the same speech the
same through a telephone, a codec or a little noise.

What it says of a recording as it is, and its softmax along that, is what it is to say: no label is
asked. People of training's side alone are heard. `mix` then goes a part of the way to it.
"""

import argparse
import random
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tqdm import tqdm

from pipelines.embedded import recordings
from pipelines.embedded.codecs import mp3, opus, telephone_call
from pipelines.embedded.distil import opened
from pipelines.embedded.evaluate import describe_all
from pipelines.embedded.joint import Heads, Prompted, optimizers, save
from pipelines.embedded.labels import ATTRIBUTES
from pipelines.embedded.mel import normalise, raw_log_mel
from pipelines.embedded.mix import between
from pipelines.embedded.model import SIZES, tower
from pipelines.embedded.sentences import parse
from pipelines.embedded.speak import SAMPLE_RATE
from streamer.core.audio.trim import trimmed

OPUS_16, MP3_32 = 0.96, 0.84  # libsndfile's compression levels for these kbit/s
PER_SPEAKER = 3
SECONDS = (1.5, 10.0)
NOISE_DB = (20.0, 30.0)  # under the voice
MIXED = 60  # frames by which lengths in a batch may lie apart
WHOLE = 2 / 3  # of the recordings beside the telephone's are as they are
MOST_NATS = 8.0  # one recording counts for no more
KEPT = 0.3  # the last share of the steps, whose weights are averaged


@dataclass
class Turn:
    """One recording as it is, through a telephone, and changed otherwise: log-mels [n, 128]. ids:
    what is to be said, with the end id."""

    whole: torch.Tensor
    telephone: torch.Tensor
    changed: torch.Tensor
    ids: torch.Tensor


def changed(samples: np.ndarray, rng: random.Random) -> np.ndarray:
    """Opus at 16 kbit/s, MP3 at 32, a little noise, or frames that begin elsewhere."""
    kind = rng.randrange(4)
    if kind == 0:
        return opus(samples, OPUS_16)
    if kind == 1:
        return mp3(samples, MP3_32)
    if kind == 2:
        noise = np.random.default_rng(rng.randrange(2**31)).normal(size=len(samples))
        gain = samples.std() * 10 ** (-rng.uniform(*NOISE_DB) / 20)
        return (samples + gain * noise).astype(np.float32)
    return np.pad(samples, (rng.randrange(160), 0))


def judges(speaker: str) -> bool:
    """One of training's people in five is not learned from here."""
    return zlib.crc32(speaker.encode()) % 5 == 0


def taken(clones: Path, most: int, judging: bool) -> Iterator[np.ndarray]:
    """Samples of training's people: three recordings of each, `most` of a source."""
    known = recordings.table()
    picked = []
    for source in known["source"]:
        num, own = Counter(), []
        for clip in recordings.clips(clones, source):
            num[clip.speaker] += not clip.held
            if not clip.held and num[clip.speaker] <= PER_SPEAKER:
                own.append(clip)
        picked += [clip for clip in own[:most] if judges(clip.speaker) == judging]
    for _, samples in recordings.decoded(tqdm(picked, desc="recordings"), known["filters"]):
        if SECONDS[0] <= len(samples) / SAMPLE_RATE <= SECONDS[1]:
            yield samples


def mel(samples: np.ndarray) -> torch.Tensor:
    """What the tower is fed of a turn, its silence cut off."""
    return torch.from_numpy(normalise(raw_log_mel(trimmed(samples))).astype(np.float32))


def heard(samples: list[np.ndarray], edge, prompted: Prompted, rng: random.Random) -> list[Turn]:
    """Each in its three kinds, and what `edge` says of it as it is."""
    turns = []
    for own in tqdm(samples, desc="kinds"):
        kinds = (own, telephone_call(own), changed(own, rng))
        turns.append(Turn(*map(mel, kinds), torch.tensor([])))
    said = describe_all(edge, prompted, [turn.whole for turn in turns])
    for turn, ids in zip(turns, said, strict=True):
        turn.ids = torch.tensor([*ids, prompted.end])
    return turns


def batches(turns: list[Turn], size: int, rng: random.Random) -> Iterator[list[Turn]]:
    """Of about one length each; every turn in turn, again and again."""
    while True:
        order = sorted(turns, key=lambda turn: len(turn.whole) + MIXED * rng.random())
        parts = [order[i : i + size] for i in range(0, len(order) - size + 1, size)]
        rng.shuffle(parts)
        yield from parts


def softmax(model, prompted: Prompted, mels: list[torch.Tensor], ids: list[torch.Tensor]):
    """The log of it before each id, [total ids, vocabulary]."""
    flat, counts = tower(model.model.audio_tower, mels)
    never = random.Random(0)
    never.random = lambda: 1.0  # no position jumps
    return prompted.logits(model, list(flat.split(counts)), ids, never).log_softmax(-1)


def nats(edge, shipped, prompted: Prompted, batch: list[Turn], rng: random.Random) -> torch.Tensor:
    """From what `shipped` says of a turn as it is to what `edge` says of its kinds, [2 * batch]:
    the telephone's first."""
    ids = [turn.ids for turn in batch]
    with torch.no_grad():
        wanted = softmax(shipped, prompted, [turn.whole for turn in batch], ids)
    other = [turn.whole if rng.random() < WHOLE else turn.changed for turn in batch]
    mels = [turn.telephone for turn in batch] + other
    found = softmax(edge, prompted, mels, ids + ids)
    off = F.kl_div(found, torch.cat([wanted, wanted]), log_target=True, reduction="none").sum(-1)
    return torch.stack([own.sum() for own in off.split([len(i) for i in ids + ids])])


def stepped(steppers: list[torch.optim.Optimizer], lr: float) -> None:
    for stepper in steppers:
        for group in stepper.param_groups:
            group["lr"] = lr
        stepper.step()
        stepper.zero_grad(set_to_none=True)


def averaged(mean: dict | None, model, num: int) -> dict:
    """The mean of `num` states, the last of which is the model's."""
    state = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
    return between(mean, state, 1 / num) if mean else state


def levels_changed(edge, prompted: Prompted, turns: list[Turn]) -> float:
    """Of seven: how many are said otherwise through a telephone."""
    whole, narrow = (
        [parse(prompted.tokenizer.decode(ids)) for ids in describe_all(edge, prompted, mels)]
        for mels in ([t.whole for t in turns], [t.telephone for t in turns])
    )
    pairs = zip(whole, narrow, strict=True)
    return sum(a[name] != b[name] for a, b in pairs for name in ATTRIBUTES) / len(turns)


def learned(edge, shipped, prompted: Prompted, turns: list[Turn], args, rng: random.Random) -> None:
    """`edge` is then the mean of the last steps."""
    heads = Heads(SIZES["edge"].text_width)  # not used: the optimizers want them
    steppers, drawn, mean = optimizers(edge, heads, args.lr), batches(turns, args.batch, rng), None
    first_kept = int((1 - KEPT) * args.steps)
    for step in (bar := tqdm(range(args.steps), desc="steady")):
        off = nats(edge, shipped, prompted, next(drawn), rng).clamp(max=MOST_NATS)
        off.mean().backward()
        torch.nn.utils.clip_grad_norm_(edge.parameters(), 1.0)
        stepped(steppers, args.lr * min(1, (step + 1) / 20) * (1 - step / args.steps))
        if step >= first_kept:
            mean = averaged(mean, edge, step - first_kept + 1)
        through, other = off.detach().view(2, -1).mean(1).tolist()
        bar.set_postfix(telephone=f"{through:.3f}", other=f"{other:.3f}")
    edge.load_state_dict(mean)
    args.out.mkdir(parents=True, exist_ok=True)
    save(args.out, edge, heads, steppers, args.steps)


def steady(args) -> None:
    torch.set_num_threads(1)
    rng, prompted = random.Random(args.seed), Prompted()
    shipped, edge = (opened("edge", args.edge) for _ in range(2))
    shipped.requires_grad_(False)
    learnt, judged = (
        heard(list(taken(args.clones, args.most, side)), shipped, prompted, rng)
        for side in (False, True)
    )
    learned(edge, shipped, prompted, learnt, args, rng)
    before, after = (levels_changed(model, prompted, judged) for model in (shipped, edge))
    print(f"through a telephone {before:.3f} of seven levels changed, now {after:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edge", type=Path, required=True, help="a model folder")
    parser.add_argument("--clones", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--most", type=int, default=2600, help="recordings of a source")
    parser.add_argument("--steps", type=int, default=660)
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--seed", type=int, default=0)
    steady(parser.parse_args())


if __name__ == "__main__":
    main()
