"""Recordings of half the held-out people, short ones and long ones apart, to calibrate the gate.

The other half checks what the gate promises. Long turns are joined of clips that no other turn has.
"""

import argparse
import hashlib
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import soundfile
from tqdm import tqdm

from pipelines.embedded.people_held import EDGE_S, trimmed
from pipelines.embedded.recordings import Clip, clips, decoded, table
from pipelines.embedded.speak import SAMPLE_RATE

SOURCES = (
    "common-voice-zh",
    "speechocean762",
    "librispeech-other",
    "librispeech-sample",
    "common-voice-59",
)
SHORT_PER_SPEAKER = {"common-voice-zh": 4, "speechocean762": 2, "librispeech-other": 4}
LONG_S = (30, 60)


def half(speaker: str) -> int:
    """0 calibrates, 1 checks."""
    return int(hashlib.sha1(f"streamer-gate:{speaker}".encode()).hexdigest()[:8], 16) % 2


def turns(samples: list[np.ndarray], rng: random.Random) -> list[np.ndarray]:
    """Whole clips in order, joined to 30 or 60 s as drawn; what is left over is dropped."""
    made, parts, wanted = [], [], rng.choice(LONG_S)
    for clip in samples:
        parts.append(clip)
        if sum(map(len, parts)) >= 0.9 * wanted * SAMPLE_RATE:
            made.append(np.concatenate(parts)[: 60 * SAMPLE_RATE])
            parts, wanted = [], rng.choice(LONG_S)
    return made


def of_speaker(found: list[Clip], filters: dict, rng: random.Random) -> tuple[list, list]:
    """(short recordings, long turns) of one speaker, from different clips."""
    number = SHORT_PER_SPEAKER.get(found[0].source, 1)
    heard = list(decoded(found, filters))
    short = [trimmed(samples, EDGE_S) for _, samples in heard[:number]]
    long = [trimmed(samples, 0.5) for _, samples in heard[number:]]
    return [s for s in short if s is not None], turns([s for s in long if s is not None], rng)


def write(clones: Path, out: Path, part: int, seed: int = 5) -> None:
    """One folder of wav files of the speakers of one half, short-* and long-*; there when whole.

    One folder, for the gate's promise is kept for each folder, and long turns alone are too few.
    """
    known, rng = table(), random.Random(seed)
    partial = out.with_name(out.name + ".part")
    partial.mkdir(parents=True, exist_ok=True)
    count = {"short": 0, "long": 0}
    for source in (row for row in known["source"] if row["id"] in SOURCES):
        by_speaker = defaultdict(list)
        for clip in clips(clones, source):
            if clip.held and half(clip.speaker) == part:
                by_speaker[clip.speaker].append(clip)
        for speaker in tqdm(sorted(by_speaker), desc=source["id"]):
            made = of_speaker(by_speaker[speaker], known["filters"], rng)
            for kind, recordings in zip(count, made, strict=True):
                for samples in recordings:
                    path = partial / f"{kind}-{count[kind]:04d}.wav"
                    soundfile.write(path, np.clip(samples, -1, 1), SAMPLE_RATE, subtype="PCM_16")
                    count[kind] += 1
    partial.rename(out)
    print(f"{count['short']} short and {count['long']} long recordings in {out}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clones", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--half", type=int, choices=(0, 1), default=0, help="0 calibrates, 1 checks"
    )
    args = parser.parse_args()
    write(args.clones, args.out, args.half)


if __name__ == "__main__":
    main()
