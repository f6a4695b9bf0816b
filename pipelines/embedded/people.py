"""Shards of recorded phrases in the format of synthesis.py, and the noise of recordings.

A session is one speaker: a few of their clips as they were recorded, or the same resynthesised to a
drawn tempo, pitch, range and length of throat, so that every level is heard from people too. A clip
is a phrase, with the pauses it has; what lies between two pauses is one more.
"""

import argparse
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import soxr
from tqdm import tqdm

from pipelines.embedded.codecs import passed_on
from pipelines.embedded.labels import PAUSE_FRAMES, f0_track, frame_power, speech_frames
from pipelines.embedded.mel import raw_log_mel
from pipelines.embedded.recordings import Clip, clips, decoded, missing, noises, table
from pipelines.embedded.speak import SAMPLE_RATE
from pipelines.embedded.syllables import COUNTED, HAN, count
from pipelines.embedded.synthesis import GAP_S, SEED, Shard, left_out, resynthesise, write_missing
from streamer.core.measures.frames import runs

CLIPS_PER_SESSION = 6
EDGE, ROOM = 5, 50  # frames kept around the speech: of a phrase, and of a whole clip
SESSIONS_PER_SHARD = 40
# share of the clips without a syllable count that is kept: they teach all but the rate
UNCOUNTED = 0.25
FIRST = {"zh": 0.55, "en": 0.75, "other": 1.0}
Part = tuple[np.ndarray, np.ndarray, int | None]  # samples, speech frames, syllables
TEST_FOLD = "5-"  # of ESC-10: kept for evaluation


def group(language: str) -> str:
    return "zh" if language in HAN else language if language == "en" else "other"


def sessions(clones: Path) -> list[list[Clip]]:
    """Clips of one speaker and source, a few at a time: training's side of the split.

    In random order, the languages that matter most rather in front: a folder that is cut short
    still has them.
    """
    by_speaker = defaultdict(list)
    for source in table()["source"]:
        for clip in clips(clones, source, SEED):
            if not clip.held:
                is_one = "picovoice" in clip.source
                by_speaker[clip.source if is_one else (clip.source, clip.speaker)].append(clip)
    size = CLIPS_PER_SESSION
    chunks = [of[i : i + size] for of in by_speaker.values() for i in range(0, len(of), size)]
    rng = random.Random(SEED)
    kept = [c for c in chunks if c[0].said.language in COUNTED or rng.random() < UNCOUNTED]
    return sorted(kept, key=lambda chunk: rng.random() * FIRST[group(chunk[0].said.language)])


def spoken(chunk: list[Clip]) -> list[Part]:
    """Each clip that is usable, silence at both ends cut to ROOM frames."""
    found = []
    for clip, samples in decoded(chunk):
        flags = speech_frames(samples)
        heard = np.flatnonzero(flags)
        if len(heard) < 100:
            continue
        a, b = max(0, heard[0] - ROOM), min(len(samples) // 160, heard[-1] + 1 + ROOM)
        syllables = count(clip.said.text, clip.said.language)
        if syllables and not 1.5 < 100 * syllables / len(heard) < 9.5:
            continue  # the text is not what was said
        found.append((samples[a * 160 : b * 160], flags[a:b], syllables))
    return found


def closer(samples: np.ndarray, flags: np.ndarray, syllables: int | None) -> Part:
    """A clip of `spoken` with EDGE frames of the room around its speech."""
    heard = np.flatnonzero(flags)
    a, b = max(0, heard[0] - EDGE), heard[-1] + 1 + EDGE
    return samples[a * 160 : b * 160], flags[a:b], syllables


def whole(parts: list[Part]) -> tuple[np.ndarray, list, np.ndarray]:
    """Clips one after the other with silence between: samples, spans (first, end, syllables),
    speech frames."""
    spans, pieces, flags, at, gap = [], [], [], 0, int(GAP_S * 100)
    for samples, speech, syllables in parts:
        spans.append((at * 160, at * 160 + len(samples), syllables))
        pieces += [samples, np.zeros(gap * 160, np.float32)]
        flags += [speech, np.zeros(gap, bool)]
        at += len(speech) + gap
    return np.concatenate(pieces), spans, np.concatenate(flags)


def restyled(samples: np.ndarray, spans: list, flags: np.ndarray, rng: random.Random):
    """The same at another tempo, pitch, range and formants; spans and speech frames move with
    it."""
    formant = rng.uniform(0.88, 1.14) if rng.random() < 0.5 else 1.0
    if formant != 1.0:
        samples = soxr.resample(samples, SAMPLE_RATE * formant, SAMPLE_RATE)
        spans = [(int(a / formant), int(b / formant), n) for a, b, n in spans]
    known = [(a, b, n) for a, b, n in spans if n]
    natural = 4.6
    if known:
        num_samples = sum(b - a for a, b, _ in known)
        natural = SAMPLE_RATE * sum(n for _, _, n in known) / max(1, num_samples)
    stretch = float(np.clip(natural / 2.0 ** rng.uniform(np.log2(2.6), np.log2(8.2)), 0.6, 1.75))
    low, high = rng.choice(((80, 115), (115, 165), (165, 225), (225, 320)))
    spread = rng.uniform(*rng.choice(((0.25, 1.2), (1.2, 2.6), (2.6, 5.0))))
    f0 = rng.uniform(low, high)
    samples = resynthesise(samples.astype(np.float32), spans, f0, spread, stretch, rng)
    num = -(-len(samples) // 160)
    at = np.minimum((np.arange(num) * formant / stretch).astype(int), len(flags) - 1)
    spans = [(int(a * stretch), min(len(samples), int(b * stretch)), n) for a, b, n in spans]
    return samples, spans, flags[at]


def add_session(
    shard: Shard, name: str, chunk: list[Clip], parts: list, natural: bool, rng: random.Random
) -> None:
    """Measure one session and put its phrases into the shard."""
    samples, spans, flags = whole(parts)
    if not natural:
        samples, spans, flags = restyled(samples, spans, flags, rng)
    mel = raw_log_mel(samples)
    f0, flags = f0_track(samples, len(mel)), np.pad(flags, (0, len(mel)))[: len(mel)]
    heard = raw_log_mel(passed_on(samples, rng)[0])
    facts = {
        "session": name,
        "voice": chunk[0].source + ":" + chunk[0].speaker[:12],
        "group": group(chunk[0].said.language),
        "natural": natural,
    }

    def add(row: dict, first: int, last: int) -> None:
        tracks = {"mel": mel, "f0": f0, "heard": heard, "speech": flags}
        shard.add({**facts, **row}, **{name: track[first:last] for name, track in tracks.items()})

    for start, end, syllables in spans:
        a, b = start // 160, min(len(mel), end // 160 + 1)
        if natural:
            add({"syllables": syllables, "whole": True}, a, b)
            at = a + np.flatnonzero(flags[a:b])
            a, b = max(a, int(at[0]) - EDGE), min(b, int(at[-1]) + 1 + EDGE)
        for first, last in {(a, b), *between_pauses(flags, a, b)}:
            share = flags[first:last].sum() / max(1, flags[a:b].sum())
            is_voiced = last - first >= 40 and (f0[first:last] > 0).mean() >= 0.2
            if is_voiced and frame_power(mel[first:last]).max() >= 1e-6:
                add({"syllables": syllables and round(syllables * float(share), 2)}, first, last)


def between_pauses(flags: np.ndarray, start: int, end: int) -> list[tuple[int, int]]:
    """Stretches of speech of at least 0.9 s between two pauses, where there is a pause."""
    silent = runs(~flags[start:end])
    cuts = [(start + a, start + b) for a, b in silent if b - a >= PAUSE_FRAMES]
    if not cuts:
        return []
    starts, ends = [start, *(b - 3 for _, b in cuts)], [*(a + 3 for a, _ in cuts), end]
    return [(int(a), int(b)) for a, b in zip(starts, ends, strict=True) if b - a >= 90]


def write_shard(folder: Path, index: int, chunks: list[list[Clip]]) -> None:
    """Each chunk of clips as it is, and once restyled; what praat cannot do is left out."""
    rng, shard = random.Random(f"{SEED}/{index}"), Shard(folder, index)
    for number, chunk in enumerate(chunks):
        style = random.Random(rng.random())
        with left_out(f"{chunk[0].source} {chunk[0].path}", 60):
            parts = spoken(chunk)
            for natural in (True, False) if parts else ():
                own = parts if natural else [closer(*part) for part in parts]
                add_session(shard, f"p{index}/{number}/{natural}", chunk, own, natural, style)
    shard.write()


def write_noise(clones: Path, folder: Path, chunks: list[list[Clip]]) -> None:
    """noise.npz, babble.npz, breaths.npz: mel power at 0 dBFS [n_frames, 128] float16-able, of
    the sources."""
    folder.mkdir(parents=True, exist_ok=True)
    noise = [s for path, s in noises(clones) if not path.split("/")[-1].startswith(TEST_FOLD)]
    people, breaths, rng = [], [], random.Random(SEED)
    for chunk in chunks:
        for samples, flags, _ in (closer(*part) for part in spoken(chunk)):
            people.append(samples / np.sqrt(np.mean(samples**2) + 1e-9))
            breaths += gaps(samples, flags)
    babble = [crowd(rng.sample(people, rng.randint(3, 8)), rng) for _ in range(60)]
    for name, signals in (("noise", noise), ("babble", babble), ("breaths", breaths[:600])):
        audible = [s for s in signals if np.mean(s**2) > 1e-9]
        powers = [10.0 ** raw_log_mel(s / np.sqrt(np.mean(s**2) + 1e-12)) for s in audible]
        np.savez(folder / f"{name}.npz", *[p.astype(np.float32) for p in powers])


def crowd(voices: list[np.ndarray], rng: random.Random, seconds: int = 12) -> np.ndarray:
    """Voices on top of each other, each repeated from a drawn place."""
    at = np.arange(seconds * SAMPLE_RATE)
    return sum(
        v[(at + rng.randrange(len(v))) % len(v)] * 10 ** rng.uniform(-0.3, 0) for v in voices
    )


def gaps(samples: np.ndarray, flags: np.ndarray) -> list[np.ndarray]:
    """Sounds between a clip's stretches of speech: breaths, clicks, room tone; 0.2 to 0.8 s."""
    return [samples[a * 160 : b * 160] for a, b in runs(~flags) if 20 <= b - a <= 80]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clones", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--noise", type=Path, help="write the noise of recordings there")
    parser.add_argument("--num", type=int, default=1000, help="shards at most")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    args = parser.parse_args()
    known = table()
    for line in missing(args.clones, known["source"] + known["noise"]):
        tqdm.write(line)
    chunks, size = sessions(args.clones), SESSIONS_PER_SHARD
    if args.noise and not (args.noise / "breaths.npz").exists():
        write_noise(args.clones, args.noise, chunks[:150])
    shards = [chunks[i : i + size] for i in range(0, len(chunks), size)]
    write_missing(write_shard, args.out, shards[: args.num], args.workers)


if __name__ == "__main__":
    main()
