"""In: two models, held-out voices. Out: how often two recordings that differ in one thing are
told apart.

The same utterance twice, changed in one attribute only. Right: the sentence names a strictly higher
level for the higher one. Reversed must never happen.
"""

import argparse
import json
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import parselmouth
import torch
from parselmouth.praat import call
from tqdm import tqdm

from pipelines.embedded.evaluate import describe_all, open_model
from pipelines.embedded.heldout import tilted
from pipelines.embedded.joint import Prompted
from pipelines.embedded.mel import normalise, raw_log_mel
from pipelines.embedded.sentences import parse
from pipelines.embedded.speak import SAMPLE_RATE, speak, trim
from pipelines.embedded.text import phrase
from pipelines.embedded.voices import Voice, voices

# per attribute: (low, high) of a moderate and of a large change
CHANGES = {
    "rate": ((1.3, 0.77), (1.6, 0.62)),  # duration
    "pitch": ((135.0, 195.0), (105.0, 250.0)),  # median f0, Hz
    "variation": ((0.5, 1.6), (0.3, 2.0)),  # times the utterance's own range
    "loudness": ((-33.0, -23.0), (-41.0, -18.0)),  # dBFS
    "pauses": ((0, 2), (0, 3)),  # pauses of 300 ms, of 500 ms
    "timbre": ((-6.0, 6.0), (-10.0, 10.0)),  # dB between the bands below and above 1 kHz
}


def utterance(voice: Voice, rng: random.Random) -> list[np.ndarray]:
    """Four phrases as the voice says them, about 1.2 s each."""
    return [trim(speak(voice, phrase(voice.language, rng.randint(4, 7), rng)[0])) for _ in range(4)]


def reshaped(samples: np.ndarray, tempo: float, pitch_hz: float, span: float) -> np.ndarray:
    """Duration times `tempo`, median f0 at `pitch_hz`, contour in semitones times `span` (2.4 at
    1.0)."""
    sound = parselmouth.Sound(samples, SAMPLE_RATE)
    manipulation = call(sound, "To Manipulation", 0.01, 60, 500)
    track = sound.to_pitch(0.02, 60, 500)
    f0, times = track.selected_array["frequency"], track.xs()
    times, f0 = times[f0 > 0], f0[f0 > 0]
    semitones = np.clip(12 * np.log2(f0 / np.median(f0)), -8, 8)
    semitones = semitones / max(semitones.std(), 0.3) * 2.4 * span
    tier = call("Create PitchTier", "f0", 0, sound.xmax)
    durations = call("Create DurationTier", "t", 0, sound.xmax)
    for t, value in zip(times, semitones, strict=True):
        call(tier, "Add point", float(t), float(np.clip(pitch_hz * 2 ** (value / 12), 60, 500)))
    call(durations, "Add point", 0, tempo)
    call([tier, manipulation], "Replace pitch tier")
    call([durations, manipulation], "Replace duration tier")
    return call(manipulation, "Get resynthesis (overlap-add)").values[0].astype(np.float32)


def variant(
    phrases: list[np.ndarray], attribute: str, value: float, large: bool, noise_seed: int
) -> np.ndarray:
    """The utterance with one attribute set to `value` and the others at fixed, ordinary ones."""
    gap = int((0.5 if large else 0.3) * SAMPLE_RATE)
    pauses = int(value) if attribute == "pauses" else 0
    parts = [
        part
        for i, p in enumerate(phrases)
        for part in (p, np.zeros(gap if i < pauses else 160, np.float32))
    ]
    whole = reshaped(
        np.concatenate(parts[:-1]),
        value if attribute == "rate" else 1.0,
        value if attribute == "pitch" else 160.0,
        value if attribute == "variation" else 1.0,
    )
    whole = tilted(whole, value / 2.2 if attribute == "timbre" else 0.0)
    active = whole[np.abs(whole) > 1e-3]
    whole *= 10 ** ((value if attribute == "loudness" else -26.0) / 20) / np.sqrt(
        np.mean(active**2)
    )
    floor = np.random.default_rng(noise_seed).standard_normal(len(whole) + 6400) * 10 ** (-68 / 20)
    return np.clip(np.pad(whole, 3200) + floor, -1, 1).astype(np.float32)


def pairs(num: int, seed: int) -> list[tuple[str, bool, np.ndarray, np.ndarray]]:
    """(attribute, large, low, high) for `num` voices drawn from those training never hears."""
    made, pool = [], voices(held_out=True)
    for index in tqdm(range(num), desc="pairs"):
        rng = random.Random(f"{seed}/{index}")
        voice = rng.choice([v for v in pool if (v.engine == "flite") == (index % 2 == 0)])
        try:
            phrases = utterance(voice, rng)
            for attribute, sizes in CHANGES.items():
                for large, (low, high) in enumerate(sizes):
                    how = (bool(large), index)
                    two = [variant(phrases, attribute, value, *how) for value in (low, high)]
                    made.append((attribute, bool(large), *two))
        except Exception as error:  # a voice that praat cannot reshape
            tqdm.write(f"{voice.name}: {error}")
    return made


def compare(model, prompted: Prompted, made: list) -> dict[tuple[str, bool], list[int]]:
    """+1 told apart, 0 the same level, -1 reversed, per attribute and size."""
    mels = [
        torch.from_numpy(normalise(raw_log_mel(s)).astype(np.float32))
        for pair in made
        for s in pair[2:]
    ]
    said = [parse(prompted.tokenizer.decode(ids)) for ids in describe_all(model, prompted, mels)]
    results = defaultdict(list)
    for (attribute, large, *_), low, high in zip(made, said[::2], said[1::2], strict=True):
        a, b = low[attribute], high[attribute]
        results[attribute, large].append(0 if a is None or b is None else int(np.sign(b - a)))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--models", nargs="+", default=[f"streamer/model/embedded/{m}" for m in ("edge", "cloud")]
    )
    parser.add_argument("--num", type=int, default=12, help="utterances; each gives 12 pairs")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument(
        "--out", type=Path, default=Path(".cache/embedded/report"), help="where contrast.json goes"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    made, prompted, report = pairs(args.num, args.seed), Prompted(), {}
    for spec in args.models:
        results = compare(open_model(spec), prompted, made)
        every = [value for values in results.values() for value in values]
        print(
            f"{spec}: {len(every)} pairs, strict {np.mean([v > 0 for v in every]):.3f}, "
            f"reversed {sum(v < 0 for v in every)}"
        )
        for (attribute, large), values in sorted(results.items()):
            strict = np.mean([v > 0 for v in values])
            print(
                f"   {attribute:10s} {'large' if large else 'moderate':9s} {strict:.2f}  reversed {values.count(-1)}"
            )
        report[Path(spec).name] = {
            "num": len(every),
            "strict": float(np.mean([v > 0 for v in every])),
            "reversed": sum(v < 0 for v in every),
            "attributes": {
                name: float(np.mean([v > 0 for size in (False, True) for v in results[name, size]]))
                for name in CHANGES
            },
        }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "contrast.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
