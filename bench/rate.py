"""How right is the syllable rate on training's people, and the weights that measure it.

    python -m bench.rate --clones DIR [--folds 5] [--write]

DIR: the clones of recordings.toml. Taken are CLIPS of each speaker whose text is known. A source
weighs what it does among the held-out people. The network (pipelines/embedded/density.py) is judged
in folds, apart by speaker, or by language where there are many: on JUDGED_CLIPS of a speaker, of
the first JUDGED clips of a source, so that nobody counts much. --write: fit it to all, and write
streamer/core/measures/density.npz. On one core 5 minutes for the recordings, and 3 for each fit.
`python -m bench.measures` judges what ships on held-out people.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from bench.common import options_of, progress, table_of, write
from bench.errors import row_of
from pipelines.embedded import recordings
from pipelines.embedded.density import EPOCHS, Net, Told, fitted, rates
from pipelines.embedded.labels import paused_frames
from pipelines.embedded.mel import raw_log_mel
from pipelines.embedded.people_held import EDGE_S, trimmed
from pipelines.embedded.recordings import Clip
from pipelines.embedded.speech import speech_frames
from pipelines.embedded.syllables import count
from streamer.core.measures.density import WEIGHTS
from streamer.core.measures.frames import FRAMES_PER_S, span_of

MANY = "common-voice-59"
SHARES = {MANY: 0.32, "common-voice-zh": 0.28, "speechocean762": 0.28}
REST_SHARE = 0.04  # each
EVENNESS = 0.6  # power of these weights while it learns: else a few clips say too much
CLIPS = 20
JUDGED_CLIPS, JUDGED = 3, 400
PLAUSIBLE = (1.5, 9.5)  # syllables/s; else the text is not what was said

Doubles = NDArray[np.float64]
Judged = tuple[Clip, bool, Told]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clones", type=Path, required=True)
    parser.add_argument("--folds", type=int, default=5, help="0: judge nothing")
    parser.add_argument("--write", action="store_true", help="write the weights that ship")
    options = options_of(parser)
    torch.set_num_threads(1)  # so that each run has the same sums
    known = recordings.table()
    taken = dict(pair for source in known["source"] for pair in chosen(source, options.clones))
    decoded = recordings.decoded(progress(list(taken), "clips"), known["filters"])
    rows = [(c, taken[c], told) for c, samples in decoded if (told := of_clip(c, samples))]
    weights = (weights_of([clip.source for clip, *_ in rows]) ** EVENNESS).tolist()
    rows = [(*of, replace(one, weight=w)) for (*of, one), w in zip(rows, weights, strict=True)]
    if options.folds:
        found = errors(rows, options.folds)
        print(table_of(found))
        print(write("rate", found))
    if options.write:
        save(net_of([told for *_, told in rows], "all"))


def chosen(source: dict, clones: Path) -> Iterator[tuple[Clip, bool]]:
    """Of training's side, with a text whose syllables can be counted; and whether it judges."""
    num: Counter[str] = Counter()
    for clip in recordings.clips(clones, source):
        if clip.held or not count(clip.said.text, clip.said.language):
            continue
        num[clip.speaker] += 1
        is_wanted = source["id"] == MANY or num.total() <= JUDGED
        if num[clip.speaker] <= CLIPS:
            yield clip, is_wanted and num[clip.speaker] <= JUDGED_CLIPS


def of_clip(clip: Clip, samples: np.ndarray) -> Told | None:
    """None where it is not usable."""
    sound = trimmed(samples, EDGE_S)
    syllables = count(clip.said.text, clip.said.language)
    if sound is None or not syllables:
        return None
    speech = speech_frames(sound)
    first, end = span_of(speech)
    seconds = (end - first - paused_frames(~speech[first:end])) / FRAMES_PER_S
    if not PLAUSIBLE[0] < syllables / max(seconds, 0.1) < PLAUSIBLE[1]:
        return None
    return Told.of(raw_log_mel(sound), speech, seconds, syllables / seconds)


def errors(rows: Sequence[Judged], num_folds: int) -> list[dict[str, object]]:
    """Mean error in folds, of each source and of all."""
    owners = [c.said.language if c.source == MANY else c.speaker for c, *_ in rows]
    judged = np.array([is_judged for _, is_judged, _ in rows])
    fold_of = folds_of([owners[i] for i in np.flatnonzero(judged)], num_folds)
    folds = np.array([fold_of.get(owner, -1) for owner in owners])
    pairs = np.ones((len(rows), 2))  # what is measured, and the text's
    for fold in range(num_folds):
        net = net_of([rows[i][-1] for i in np.flatnonzero(folds != fold)], f"fold {fold + 1}")
        mine = np.flatnonzero(judged & (folds == fold))
        told = [rows[i][-1] for i in mine]
        pairs[mine] = np.stack([rates(net, told), [one.rate for one in told]], 1)
    print(table_of([row_of("rate", pairs[judged])]))
    off = np.abs(pairs[:, 0] - pairs[:, 1])
    sources = np.array([clip.source for clip, *_ in rows])
    weights = weights_of(sources[judged].tolist())
    kinds = {name: judged & (sources == name) for name in dict.fromkeys(sources.tolist())}
    found = {name: (kind.sum(), off[kind].mean()) for name, kind in kinds.items() if kind.any()}
    found["all, weighted"] = judged.sum(), np.average(off[judged], weights=weights)
    return [
        {"recordings of": name, "number": int(num), "mean error, syllables/s": float(error)}
        for name, (num, error) in found.items()
    ]


def net_of(told: Sequence[Told], name: str) -> Net:
    *_, net = tqdm(fitted(told), desc=name, total=EPOCHS, leave=False)
    return net


def save(net: Net) -> None:
    """In half precision: it changes no rate by 0.01."""
    biases, kernels = net.weights()
    arrays = {f"biases{i}": one.astype(np.float16) for i, one in enumerate(biases)}
    arrays |= {f"kernels{i}": one.astype(np.float16) for i, one in enumerate(kernels)}
    np.savez(WEIGHTS, **arrays)
    print(WEIGHTS)


def weights_of(sources: list[str]) -> Doubles:
    num = Counter(sources)
    return np.array([SHARES.get(source, REST_SHARE) / num[source] for source in sources])


def folds_of(owners: list[str], num_folds: int) -> dict[str, int]:
    """In which fold each owner is."""
    names = sorted(set(owners))
    np.random.default_rng(0).shuffle(names)
    return {name: i % num_folds for i, name in enumerate(names)}


if __name__ == "__main__":
    main()
