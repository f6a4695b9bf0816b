"""Shards of synthetic phrases as clean log-mel [n_frames, 128] and f0 [n_frames], float16.

A session is one voice in one style: phrases of a few syllables, resynthesised (PSOLA) to a drawn
tempo, pitch and pitch range. Turns of any length, with any pauses, are put together from a
session's phrases while training.
"""

import argparse
import contextlib
import json
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import parselmouth
import soxr
import torch
from parselmouth.praat import call
from tqdm import tqdm
from tqdm.contrib.concurrent import process_map

from pipelines.embedded.codecs import passed_on
from pipelines.embedded.labels import f0_track, frame_power
from pipelines.embedded.mel import raw_log_mel
from pipelines.embedded.speak import SAMPLE_RATE, Voice, phrase, speak, trim, voices

GAP_S = 0.3
SESSIONS_PER_SHARD = 40
SEED = 1


def session(
    voice: Voice, rng: random.Random, num_phrases: int = 7
) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    """Say one session; returns samples at -26 dBFS and per phrase (first sample, end sample,
    syllables)."""
    rate = 2.0 ** rng.uniform(np.log2(2.5), np.log2(8.6))
    pitch_hz = 2.0 ** rng.uniform(np.log2(75), np.log2(320))
    spread = rng.uniform(*rng.choice(((0.25, 1.2), (1.2, 2.6), (2.6, 5.0))))
    formant = rng.uniform(0.88, 1.15) if rng.random() < 0.6 else 1.0
    spoken, spans, at = [], [], 0
    for _ in range(num_phrases):
        text, count = phrase(voice.language, rng.randint(3, 15), rng)
        key = int(np.clip(50 + 40 * np.log2(pitch_hz / 130), 5, 95))
        samples = trim(speak(voice, text, wpm=int(np.clip(165 * rate / 4.8, 90, 330)), pitch=key))
        if formant != 1.0:
            samples = soxr.resample(samples, SAMPLE_RATE * formant, SAMPLE_RATE)
        spans.append((at, at + len(samples), count))
        spoken += [samples, np.zeros(int(GAP_S * SAMPLE_RATE), np.float32)]
        at += len(samples) + int(GAP_S * SAMPLE_RATE)
    whole = np.concatenate(spoken)
    natural = SAMPLE_RATE * sum(s[2] for s in spans) / sum(s[1] - s[0] for s in spans)
    stretch = float(np.clip(natural / rate, 0.5, 2.0))
    whole = resynthesise(whole, spans, pitch_hz, spread, stretch, rng)
    spans = [(int(a * stretch), min(len(whole), int(b * stretch)), n) for a, b, n in spans]
    power = np.mean(np.concatenate([whole[a:b] for a, b, _ in spans]) ** 2)
    return (whole * np.sqrt(10**-2.6 / (power + 1e-12))).astype(np.float32), spans


def resynthesise(
    samples: np.ndarray, spans, pitch_hz: float, spread: float, stretch: float, rng
) -> np.ndarray:
    """New pitch contour (median Hz, SD in semitones) and tempo by overlap-add.

    The contour is the voice's own plus slow random waves: synthetic voices vary by under a semitone
    on their own, and scaling that alone would only ever give one melody.
    """
    # Overlap-add places the pulses of voiceless sounds by Praat's own chance, which else no seed
    # reaches.
    seed = rng.randrange(2**31)
    parselmouth.praat.run(f"random_initializeWithSeedUnsafelyButPredictably: {seed}")
    sound = parselmouth.Sound(samples, SAMPLE_RATE)
    manipulation = call(sound, "To Manipulation", 0.01, 60, 500)
    own = sound.to_pitch(0.02, 60, 500)
    f0, times = own.selected_array["frequency"], own.xs()
    voiced = f0 > 0
    if voiced.sum() < 20:
        raise ValueError("not voiced")
    semitones = np.where(voiced, 12 * np.log2(np.maximum(f0, 1) / np.median(f0[voiced])), 0.0)
    semitones = np.clip(semitones, -8, 8)
    wave = np.zeros_like(times)
    for start, end, _ in spans:
        here = (times >= start / SAMPLE_RATE) & (times < end / SAMPLE_RATE)
        t = times[here] - start / SAMPLE_RATE
        for _ in range(3):
            height, turns = rng.gauss(0, 1), rng.uniform(0.2, 2.5) * t + rng.random()
            wave[here] += height * np.sin(2 * np.pi * turns)
        wave[here] += -rng.uniform(0, 1.5) * t / max(t.max(initial=1e-3), 1e-3) + rng.gauss(0, 0.4)
    share = rng.uniform(0.0, 0.8)
    contour = semitones / (semitones[voiced].std() + 0.1) * (1 - share)
    contour += wave / (wave[voiced].std() + 1e-6) * share
    contour = (contour - np.median(contour[voiced])) / (contour[voiced].std() + 1e-6) * spread
    tier = call("Create PitchTier", "f0", 0, sound.xmax)
    for t, value in zip(times[voiced], contour[voiced], strict=True):
        call(tier, "Add point", float(t), float(np.clip(pitch_hz * 2 ** (value / 12), 62, 480)))
    durations = call("Create DurationTier", "tempo", 0, sound.xmax)
    call(durations, "Add point", 0, stretch)
    call([tier, manipulation], "Replace pitch tier")
    call([durations, manipulation], "Replace duration tier")
    return call(manipulation, "Get resynthesis (overlap-add)").values[0].astype(np.float32)


class Shard:
    """Collects phrases or clips, and writes them so that the listing says the shard is whole."""

    def __init__(self, folder: Path, index: int) -> None:
        self.path, self.rows, self.at = folder / f"{index:05d}", [], 0
        self.arrays: dict[str, list[np.ndarray]] = {}

    def add(self, row: dict, **frames: np.ndarray) -> None:
        """One phrase or clip: the facts of its row, and its arrays, all [n_frames, ...]."""
        (length,) = {len(values) for values in frames.values()}
        for name, values in frames.items():
            kind = np.uint8 if name == "speech" else np.float16
            self.arrays.setdefault(name, []).append(values.astype(kind))
        self.rows.append({**row, "start": self.at, "end": self.at + length})
        self.at += length

    def write(self) -> None:
        for name, parts in self.arrays.items():
            np.save(self.path.with_suffix(f".{name}.npy"), np.concatenate(parts))
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.rows))
        part.rename(self.path.with_suffix(".json"))


def shard_at(listing: Path) -> tuple[list[dict], dict[str, np.ndarray]]:
    """The rows of a written shard, and its arrays by name, memory-mapped."""
    files = listing.parent.glob(f"{listing.stem}.*.npy")
    arrays = {file.name.split(".")[1]: np.load(file, mmap_mode="r") for file in files}
    return json.loads(listing.read_text("utf-8")), arrays


def write_missing(write: Callable[..., None], folder: Path, parts: Sequence, workers: int) -> None:
    """Call `write(folder, index, part)` for each missing shard, in `workers` processes."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # processes that fork cannot use the threads of this one
    missing = [n for n in range(len(parts)) if not (folder / f"{n:05d}.json").exists()]
    chosen = [parts[n] for n in missing]
    process_map(partial(write, folder), missing, chosen, max_workers=workers, desc="shards")


@contextlib.contextmanager
def left_out(name: str, seconds: int) -> Iterator[None]:
    """Report and leave out a session that fails or runs longer than this, and go on with the rest."""

    def hung(*_: object) -> None:
        raise TimeoutError("hung")

    signal.signal(signal.SIGALRM, hung)
    try:
        signal.alarm(seconds)
        yield
    except Exception as error:  # espeak-ng or praat cannot do it
        tqdm.write(f"{name}: {type(error).__name__} {error}")
    finally:
        signal.alarm(0)


def write_shard(folder: Path, index: int, pool: list[Voice]) -> None:
    """Write one shard, always the same; sessions that fail or hang are left out."""
    rng, shard = random.Random(f"{SEED}/{index}"), Shard(folder, index)
    for number in range(SESSIONS_PER_SHARD):
        voice = rng.choice(pool)
        style = random.Random(rng.random())
        with left_out(voice.name, 40):
            samples, spans = session(voice, style)
            mel = raw_log_mel(samples)
            f0 = f0_track(samples, len(mel))
            heard = raw_log_mel(passed_on(samples, style)[0])
            for start, end, count in spans:
                a, b = max(0, start // 160 - 1), min(len(mel), end // 160 + 2)
                if b - a < 15 or (f0[a:b] > 0).mean() < 0.25 or frame_power(mel[a:b]).max() < 1e-5:
                    continue
                row = {"session": f"{index}/{number}", "voice": voice.name, "syllables": count}
                shard.add(row, mel=mel[a:b], f0=f0[a:b], heard=heard[a:b])
    shard.write()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--num", type=int, default=10, help="shards")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    args = parser.parse_args()
    write_missing(write_shard, args.out, args.num * [voices(held_out=False)], args.workers)


if __name__ == "__main__":
    main()
