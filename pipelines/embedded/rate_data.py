"""Recordings of known text, as features and targets of the syllable network.

    python -m pipelines.embedded.rate_data --clones DIR --out DIR/rate

Each file holds the clips of one draw: log-mel in 64 bands, speech flags, and a JSON row per clip
with the speaker, the source, syllables per second and the phones of the text. Clips are drawn in
random order, so the files of an interrupted run already represent all sources. Only clips of the
training side are taken; `--held FOLDER` reads a folder of `people_held` instead.
"""

import argparse
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import soundfile
import torch
from tqdm import tqdm

from pipelines.embedded import recordings
from pipelines.embedded.labels import paused_frames, span_of, speech_frames
from pipelines.embedded.mel import raw_log_mel
from pipelines.embedded.phones import phones
from pipelines.embedded.syllables import count
from pipelines.embedded.synthesis import Shard
from streamer.core.measures.frames import FRAMES_PER_S, HOP_SAMPLES
from streamer.model.audio.density import in_bands

CLIPS_PER_FILE = 400
SEED = 1
LEAST_FRAMES = 120  # of speech
EDGE_FRAMES = 15  # kept around the speech
PLAUSIBLE = (1.5, 9.5)  # syllables/s; outside, the text is not what was said


def of_samples(samples: np.ndarray, syllables: int) -> tuple[np.ndarray, np.ndarray, float] | None:
    """(bands [n, NUM_BANDS], speech [n], seconds of speech without pauses) from EDGE_FRAMES before
    the first speech to as many after the last; None where the text cannot be what was said."""
    speech = speech_frames(samples)
    if speech.sum() < LEAST_FRAMES:
        return None
    first, end = span_of(speech)
    seconds = (end - first - paused_frames(~speech[first:end])) / FRAMES_PER_S
    if not PLAUSIBLE[0] < syllables / max(seconds, 0.1) < PLAUSIBLE[1]:
        return None
    begin, end = max(0, first - EDGE_FRAMES), end + EDGE_FRAMES
    cut = samples[begin * HOP_SAMPLES : end * HOP_SAMPLES]
    bands = in_bands(raw_log_mel(cut))
    return bands, speech[begin : begin + len(bands)], seconds


def from_clones(clones: Path) -> list[recordings.Clip]:
    """Clips of the training side whose syllables can be counted, in random order."""
    found = []
    for source in recordings.table()["source"]:
        most = {"cap": source.get("rate_cap", source["cap"])}
        own = recordings.clips(clones, source | most)
        found += [clip for clip in own if not clip.held and clip.said.text]
    random.Random(SEED).shuffle(found)
    return found


def rows_of_clones(clips: list[recordings.Clip]) -> Iterator[tuple[dict, np.ndarray]]:
    """(facts, samples) of each clip whose syllables are known."""
    known = {clip: count(clip.said.text, clip.said.language) for clip in clips}
    usable = [clip for clip in clips if known[clip]]
    for clip, samples in recordings.decoded(usable):
        said = clip.said
        facts = {"speaker": clip.speaker, "source": clip.source, "language": said.language}
        facts |= {"syllables": known[clip], "phones": phones(said.text, said.language)}
        yield facts, samples


def rows_of_held(folder: Path) -> Iterator[tuple[dict, np.ndarray]]:
    """(facts, samples) of each recording in a folder of `people_held` whose syllables are known."""
    lines = (folder / "manifest.jsonl").read_text("utf-8").splitlines()
    for row in tqdm([json.loads(line) for line in lines], desc="held out"):
        if row["syllables"]:
            names = ("speaker", "source", "language", "kind", "wav", "syllables")
            facts = {name: row[name] for name in names}
            yield facts | {"phones": []}, soundfile.read(folder / row["wav"], dtype="float32")[0]


def write(folder: Path, index: int, pairs: Iterable[tuple[dict, np.ndarray]]) -> None:
    """One file of clips and its listing, of (facts, samples)."""
    shard = Shard(folder, index)
    for facts, samples in pairs:
        if found := of_samples(samples, facts["syllables"]):
            bands, speech, seconds = found
            rate = {"seconds": seconds, "rate": facts["syllables"] / seconds}
            shard.add(facts | rate, bands=bands, speech=speech)
    if shard.rows:
        shard.write()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clones", type=Path, help="clones of recordings.toml")
    parser.add_argument("--held", type=Path, help="a folder of `people_held`")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    if args.held:
        write(args.out, 0, rows_of_held(args.held))
        return
    clips = from_clones(args.clones)
    for first in tqdm(range(0, len(clips), CLIPS_PER_FILE), desc="clips"):
        index = first // CLIPS_PER_FILE
        if not (args.out / f"{index:05d}.json").exists():
            write(args.out, index, rows_of_clones(clips[first : first + CLIPS_PER_FILE]))


if __name__ == "__main__":
    main()
