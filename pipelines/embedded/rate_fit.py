"""Train the syllable network, judge it, and write density.npz.

    python -m pipelines.embedded.rate_fit train --data DIR/rate --run RUN --noise DIR/noise [--onward]
    python -m pipelines.embedded.rate_fit write --data DIR/rate --run RUN
    python -m pipelines.embedded.rate_fit judge --data DIR/rate-held --run RUN

With --onward, `train` goes on from density.npz, towards the mean of a text's syllables and the count
of that network. `train` reads the clips of `rate_data` again at each epoch, and resumes from last.pt. One training
speaker in 14, and half the clips of the one German voice, are kept apart: the mixture of the two
counts is fitted on them. `judge` prints the errors by group of languages.
"""

import argparse
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pipelines.embedded.rate_net import Conditions, Net, begun, masked, padded
from pipelines.embedded.recordings import hashed
from pipelines.embedded.synthesis import shard_at
from streamer.core.measures.frames import FRAMES_PER_S
from streamer.model.audio.density import WEIGHTS, learnt

BATCH = 16
NEAR = 16  # batches whose clips are sorted by length together
RATE, DECAY = 3e-3, 1e-2
RATE_ONWARD = 4e-4
WARM, FLAT = 0.05, 0.35  # shares of the time: learning rate rises, and begins to fall
AVERAGE = 0.998  # of the weights, per step
WORST = 1.5  # syllables/s; a larger error says that the text of the clip is wrong
DOUBTED = 0.1  # the part of the error over WORST that counts
OFTEN = {"German": 3, "English": 2}  # times an epoch
LEARNERS, MANY = "speechocean762", "common-voice-59"


def clips_of(folder: Path) -> list[dict]:
    """The clips of a folder: rows as `rate_data` wrote them, with their arrays."""
    rows = []
    for listing in sorted(folder.glob("*.json")):
        own, arrays = shard_at(listing)
        for row in own:
            at = slice(row["start"], row["end"])
            rows.append(row | {name: values[at] for name, values in arrays.items()})
    return rows


def is_apart(row: dict) -> bool:
    """Whether a training clip judges and does not train."""
    if row["speaker"] == "kerstin":
        return round(100 * row["seconds"]) % 2 == 0
    return hashed(f"rate:{row['speaker']}") % 14 == 0


def group(row: dict) -> str:
    if row["source"] == LEARNERS:
        return "learners"
    if row["language"] == "de":
        return "German"
    if row["language"].startswith("zh"):
        return "Chinese"
    if row["source"] == MANY:
        return "59 languages"
    return {"en": "English"}.get(row["language"], "other")


def epoch_of(rows: list[dict], chance: np.random.Generator) -> Iterator[list[dict]]:
    """Batches of clips of like length, in random order."""
    repeated = [row for row in rows for _ in range(OFTEN.get(group(row), 1))]
    order = chance.permutation(len(repeated))
    batches = []
    for first in range(0, len(order), NEAR * BATCH):
        near = sorted(order[first : first + NEAR * BATCH], key=lambda i: len(repeated[i]["bands"]))
        batches += [near[i : i + BATCH] for i in range(0, len(near), BATCH)]
    for i in chance.permutation(len(batches)):
        yield [repeated[j] for j in batches[i]]


def losses(net: Net, rows: list[dict], conditions: Conditions) -> tuple[Tensor, list[float]]:
    """CTC per phone, and the error of the rate by each head, on these clips and one of noise that
    has no syllables; with the parts as numbers."""
    played = [conditions(row["bands"], row["speech"]) for row in rows]
    num = max(len(bands) for bands, *_ in played)
    rows = [*rows, {"seconds": num / FRAMES_PER_S, "syllables": 0, "phones": []}]
    played.append((conditions.no_speech(num), np.ones(num, bool), 1.0))
    steps, here, speech = padded([(bands, spoken) for bands, spoken, _ in played])
    said, density = net(masked(steps, here, conditions.chance), here)
    tempo = torch.tensor([each[2] for each in played], dtype=torch.float32)
    seconds = torch.tensor([row["seconds"] for row in rows]) / tempo
    rate = torch.tensor([float(row["syllables"]) for row in rows]) / seconds
    off = [((count * speech).sum(1) / seconds - rate).abs() for count in (density, begun(said))]
    off = [torch.where(each < WORST, each, WORST + DOUBTED * (each - WORST)).mean() for each in off]
    known = [i for i, row in enumerate(rows) if row["phones"]]
    phones = torch.zeros(())
    if known:
        phones = per_phone(said[known], here[known], [rows[i]["phones"] for i in known])
    return phones + 0.5 * off[0] + 0.15 * off[1], [each.item() for each in (phones, *off)]


def per_phone(said: Tensor, here: Tensor, phones: list[list[int]]) -> Tensor:
    """The mean CTC per phone of clips."""
    wanted = [torch.tensor(each) for each in phones]
    sizes = torch.tensor([len(each) for each in wanted])
    options = {"reduction": "none", "zero_infinity": True}
    steps = here.sum(1).long()
    off = F.ctc_loss(said.transpose(0, 1), torch.cat(wanted), steps, sizes, **options)
    return (off / sizes).clamp(max=8.0).mean()


@torch.no_grad()
def read(net: Net, rows: list[dict]) -> np.ndarray:
    """Rates by the begun nuclei and by the density [n, 2], syllables/s, without play."""
    found = np.zeros((len(rows), 2))
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]["bands"]))
    for first in range(0, len(order), BATCH):
        at = order[first : first + BATCH]
        clips = [(rows[i]["bands"].astype(np.float32), rows[i]["speech"]) for i in at]
        steps, here, speech = padded(clips)
        said, density = net(steps, here)
        seconds = torch.tensor([rows[i]["seconds"] for i in at])
        for column, count in enumerate((begun(said), density)):
            found[at, column] = ((count * speech).sum(1) / seconds).numpy()
    return found


def mixture_of(found: np.ndarray, rows: list[dict]) -> np.ndarray:
    """Weights of both counts by least absolute error, found by reweighted least squares."""
    rates = np.array([row["rate"] for row in rows])
    weights = np.ones(len(rates))
    for _ in range(30):
        root = np.sqrt(weights)[:, None]
        mixture = np.linalg.lstsq(found * root, rates * root[:, 0], rcond=None)[0]
        weights = 1 / np.maximum(np.abs(found @ mixture - rates), 0.05)
    return mixture


def table(estimates: np.ndarray, rows: list[dict]) -> str:
    """Mean absolute error and bias in syllables/s, of all clips and of each group."""
    rates, groups = np.array([row["rate"] for row in rows]), np.array([group(r) for r in rows])
    parts = []
    for name in ("all", *sorted(set(groups.tolist()))):
        inside = (groups == name) | (name == "all")
        off = estimates[inside] - rates[inside]
        parts.append(f"{name} {inside.sum()}: {np.abs(off).mean():.3f} ({off.mean():+.3f})")
    return " | ".join(parts)


def train(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    args.run.mkdir(parents=True, exist_ok=True)
    net, average = (Net.shipped() if args.onward else Net() for _ in range(2))
    average.load_state_dict(net.state_dict())
    optimiser = torch.optim.AdamW(net.parameters(), RATE, weight_decay=DECAY)
    parts = {"net": net, "average": average, "optimiser": optimiser}
    last, epoch, earlier = args.run / "last.pt", 0, 0.0
    if last.exists():
        state = torch.load(last, weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        epoch, earlier = state["epoch"], state["seconds"]
    began = time.monotonic() - earlier
    while (done := (time.monotonic() - began) / (60 * args.minutes)) < 1:
        conditions = Conditions(args.noise, args.seed + epoch)
        clips = clips_of(args.data)
        learning = [row for row in clips if not is_apart(row)]
        if args.onward:
            learning = halfway(learning)
        net.train()
        for norm in net.norms:
            norm.train(not args.onward)
        figures = []
        for rows in epoch_of(learning, conditions.chance):
            done = (time.monotonic() - began) / (60 * args.minutes)
            if done >= 1:
                break
            set_rate(optimiser, done, RATE_ONWARD if args.onward else RATE)
            loss, found = losses(net, rows, conditions)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            optimiser.step()
            towards(average, net)
            figures.append(found)
        if not figures:  # the time ran out between two epochs
            break
        epoch += 1
        state = {name: part.state_dict() for name, part in parts.items()}
        state |= {"epoch": epoch, "seconds": time.monotonic() - began}
        torch.save(state, args.run / "new.pt")
        (args.run / "new.pt").rename(last)
        tell(args.run, epoch, state["seconds"], figures, average, filter(is_apart, clips))


def halfway(rows: list[dict]) -> list[dict]:
    """The clips, with the mean of their text's syllables and those that density.npz counts."""
    rates = read(Net.shipped(), rows) @ learnt()["mixture"]
    counts = [rate * row["seconds"] for rate, row in zip(rates, rows, strict=True)]
    both = zip(rows, counts, strict=True)
    return [row | {"syllables": (row["syllables"] + count) / 2} for row, count in both]


def set_rate(optimiser: torch.optim.Optimizer, done: float, highest: float) -> None:
    """Learning rate at a share `done` of the time: up, flat, and along a cosine to nearly 0."""
    falling = 0.5 * (1 + np.cos(np.pi * max(0.0, done - FLAT) / (1 - FLAT)))
    for part in optimiser.param_groups:
        part["lr"] = float(highest * max(0.004, min(1.0, done / WARM + 0.01, falling)))


@torch.no_grad()
def towards(average: Net, net: Net) -> None:
    for mine, its in zip(average.state_dict().values(), net.state_dict().values(), strict=True):
        if mine.is_floating_point():
            mine.lerp_(its, 1 - AVERAGE)


def tell(
    run: Path, epoch: int, seconds: float, figures: list, average: Net, apart: Iterable[dict]
) -> None:
    """One line of the learning curve, on a part of the clips that are kept apart."""
    apart = list(islice(apart, 600))
    found = read(average.eval(), apart)
    mixture = mixture_of(found, apart)
    phones, density, nuclei = np.mean(figures, 0)
    line = f"epoch {epoch} {seconds / 60:.1f} min ctc {phones:.3f} rate {density:.3f} {nuclei:.3f}"
    line += f" mixture {mixture.round(2)} | {table(found @ mixture, apart)}"
    print(line, flush=True)
    with (run / "log.txt").open("a") as log:
        log.write(line + "\n")


def opened(run: Path) -> Net:
    net = Net()
    net.load_state_dict(torch.load(run / "last.pt", weights_only=True)["average"])
    return net.eval()


def judge(args: argparse.Namespace) -> None:
    rows = clips_of(args.data)
    found = read(opened(args.run), rows)
    mixture = np.load(args.run / "mixture.npy")
    for name, weights in (("nuclei", (1, 0)), ("density", (0, 1)), ("both", mixture)):
        print(f"{name:8} {table(found @ weights, rows)}")


def write(args: argparse.Namespace) -> None:
    """density.npz in half precision, with the mixture that fits the clips kept apart."""
    net, rows = opened(args.run), list(filter(is_apart, clips_of(args.data)))
    found = read(net, rows)
    mixture = mixture_of(found, rows)
    np.save(args.run / "mixture.npy", mixture)
    print(mixture, table(found @ mixture, rows))
    arrays = net.arrays() | {"mixture": mixture}
    np.savez(args.weights, **{name: value.astype(np.float16) for name, value in arrays.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("do", choices=("train", "judge", "write"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--run", type=Path, required=True, help="folder of the training")
    parser.add_argument("--noise", type=Path)
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--minutes", type=float, default=40.0, help="of the clock")
    parser.add_argument("--onward", action="store_true", help="train: go on from density.npz")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # small gradients would take a hundred times as long
    try:
        {"train": train, "judge": judge, "write": write}[args.do](args)
    finally:
        torch.set_flush_denormal(False)


if __name__ == "__main__":
    main()
