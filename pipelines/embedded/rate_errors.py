"""How far the syllable rate is off, by length, noise and rate: the error bar of density.npz.

    python -m pipelines.embedded.rate_errors hear --clones DIR --out DIR/rate-noisy
    python -m pipelines.embedded.rate_errors fit --data DIR/rate-noisy [--write]

`hear` measures training clips that the network did not train on (`rate_fit.is_apart`), as they are
and with pink noise or other voices 20, 10 and 3 dB under the speech. `fit` finds the four numbers
of `streamer.core.measures.density.rate_error` by the least mean absolute deviation of the errors'
size, and prints how well they say it.
"""

import argparse
import json
import random
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import minimize
from tqdm import tqdm

from pipelines.embedded import recordings
from pipelines.embedded.rate_data import EDGE_FRAMES, PLAUSIBLE, from_clones, of_samples
from pipelines.embedded.rate_fit import is_apart
from pipelines.embedded.speech import speech_frames
from pipelines.embedded.syllables import count
from streamer.core.measures import density
from streamer.core.measures.frames import HOP_SAMPLES, span_of
from streamer.model.audio.ear import TurnMeasurer

LEVELS_DB = (None, 20.0, 10.0, 3.0)
NUM_VOICES = 5  # of a babble


def pink(num: int, chance: np.random.Generator) -> np.ndarray:
    spectrum = np.fft.rfft(chance.standard_normal(num))
    return np.fft.irfft(spectrum / np.sqrt(np.maximum(np.arange(len(spectrum)), 1)), num)


def babble(voices: list[np.ndarray], num: int, chance: np.random.Generator) -> np.ndarray:
    chosen = [voices[i] for i in chance.integers(0, len(voices), NUM_VOICES)]
    at = np.arange(num)
    return sum(v[(at + chance.integers(len(v))) % len(v)] / np.std(v) for v in chosen)


def hear(args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    chance = np.random.default_rng(args.seed)
    known = recordings.table()["filters"]
    clips = [clip for clip in from_clones(args.clones, args.seed) if count_of(clip)]
    apart = [c for c in clips if is_apart({"speaker": c.speaker, "seconds": 0.01})][: args.num]
    others = [
        samples for _, samples in recordings.decoded(random.Random(1).sample(clips, 40), known)
    ]
    args.out.mkdir(parents=True, exist_ok=True)
    with (args.out / "errors.jsonl").open("w") as file:
        for clip, samples in recordings.decoded(tqdm(apart), known):
            found = of_samples(samples, count_of(clip))
            if not found:
                continue
            truth = count_of(clip) / found[2]
            first, end = span_of(speech_frames(samples))
            first = max(0, first - 3 * EDGE_FRAMES)
            clean = samples[first * HOP_SAMPLES : (end + 3 * EDGE_FRAMES) * HOP_SAMPLES]
            for level_db in LEVELS_DB:
                row = measured(disturbed(clean, level_db, others, chance))
                if row:
                    facts = {"language": clip.said.language, "source": clip.source}
                    file.write(json.dumps({**facts, **row, "rate": truth, "under_db": level_db}))
                    file.write("\n")


def count_of(clip: recordings.Clip) -> int | None:
    return count(clip.said.text, clip.said.language)


def disturbed(
    clean: np.ndarray, level_db: float | None, others: list[np.ndarray], chance: np.random.Generator
) -> np.ndarray:
    """With noise that far under the speech; None: as it is."""
    if level_db is None:
        return clean
    num = len(clean)
    noise = pink(num, chance) if chance.random() < 0.5 else babble(others, num, chance)
    loud = np.sqrt(np.mean(clean[np.abs(clean) > 0.1 * np.abs(clean).max()] ** 2))
    scale = loud / np.std(noise) * 10 ** (-level_db / 20)
    return (clean + scale * noise).astype(np.float32)


def measured(samples: np.ndarray) -> dict | None:
    measurer = TurnMeasurer()
    measurer.push(samples)
    found = measurer.finish()
    if not found.rate_syllables_per_s or not found.speech_s:
        return None
    return {
        "measured": found.rate_syllables_per_s,
        "speech_s": found.speech_s,
        "snr_db": found.snr_db,
    }


def fit(args: argparse.Namespace) -> None:
    rows = [json.loads(line) for line in (args.data / "errors.jsonl").read_text().splitlines()]
    rows = [row for row in rows if PLAUSIBLE[0] < row["rate"] < PLAUSIBLE[1]]
    columns = ("speech_s", "snr_db", "measured", "rate")
    table = [
        [density.UNKNOWN_SNR_DB if row[c] is None else row[c] for c in columns] for row in rows
    ]
    speech_s, snr_db, said, true = np.array(table, float).T
    off = np.abs(said - true)

    def loss(numbers: np.ndarray) -> float:
        """Negative log-likelihood of Laplace errors, whose scale is their mean size."""
        scale = density.error_of(np.exp(numbers), speech_s, snr_db, said)
        return float(np.mean(np.log(scale) + off / scale))

    start = np.log([0.2, 0.3, 3.0, 0.5])
    best = minimize(loss, start, method="L-BFGS-B", bounds=[(-6, 3)] * 4)
    numbers = np.exp(best.x)
    scale = density.error_of(numbers, speech_s, snr_db, said)
    print("numbers", numbers.round(4).tolist(), "of", len(rows))
    for level_db in LEVELS_DB:
        here = np.array([row["under_db"] == level_db for row in rows])
        for name, part in (("under 3 s", speech_s < 3), ("3 s and more", speech_s >= 3)):
            both = here & part
            if both.any():
                told = f"error {off[both].mean():.3f}, told {scale[both].mean():.3f}"
                print(f"noise {level_db} dB, {name}: {both.sum()} recordings, {told}")
    if args.write:
        with np.load(density.WEIGHTS) as held:
            arrays = {name: held[name] for name in held.files}
        np.savez(density.WEIGHTS, **arrays | {"error": numbers.astype(np.float16)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("do", choices=("hear", "fit"))
    parser.add_argument("--clones", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--num", type=int, default=260, help="recordings")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="put the numbers into density.npz")
    args = parser.parse_args()
    {"hear": hear, "fit": fit}[args.do](args)


if __name__ == "__main__":
    main()
