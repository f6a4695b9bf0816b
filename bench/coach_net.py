"""How much does a second tell of a change in the voice, and the weights that tell it.

    python -m bench.coach_net --clones DIR [--num 400] [--folds 2] [--write]

DIR: the clones of recordings.toml. Recordings of one of training's speakers are joined to a reading
of 25 to 45 s, as bench/coach_readings.py joins them, of at most so many of a source. Each is
changed as there, and also resynthesised with nothing changed, or slowed and hurried again: so the
network (pipelines/embedded/voice_net.py) learns no trace of PSOLA. In folds, apart by speaker: how
far the mean moves with each change, in SDs of a second's mean. --write: learn from all, and write
streamer/core/coach/voice.npz; then FORM of voice.py is raised. On one core 45 minutes for the
readings, and 9 for a fit of all. The network's sizes were chosen in the same folds.
`python -m bench.coach` judges what ships on held-out people.
"""

from __future__ import annotations

import argparse
import random
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from bench.coach_changes import Sound, flattened, tempo
from bench.coach_readings import joined
from bench.common import options_of, progress, table_of, write
from pipelines.embedded import recordings
from pipelines.embedded.people_held import EDGE_S, trimmed
from pipelines.embedded.recordings import Clip
from pipelines.embedded.voice_net import EPOCHS, Net, centred, fitted, heard
from pipelines.embedded.voice_versions import PLAIN, Reading, Version
from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.coach.coaching import STEP_SAMPLES
from streamer.core.coach.evidence import Seconds
from streamer.core.coach.voice import STEP_FRAMES, STEPS_PER_S, WEIGHTS, Steps, Weights, in_bands
from streamer.core.measures.growing import Growing
from streamer.model.audio.mel_frames import NUM_MELS, MelFrames
from streamer.model.audio.pitch_track import PitchTrack, turn_track
from streamer.model.audio.vad import VoiceActivity

MOST_CLIPS = 16
MIN_S, MOST_S = 25, 45
MIN_SPEECH_S = 15
SOFTER_DB = 12.0
FALL_EVERY_S = 4  # for one second, so that its onset counts
Change = Callable[[Sound], Sound]
Part = tuple[np.ndarray, np.ndarray]  # values, and how much each counts
# Octaves of tempo and of melody, and what makes them.
CHANGES: dict[str, tuple[tuple[float, float], Change]] = {
    PLAIN: ((0, 0), lambda samples: samples),
    "2 times as fast": ((1, 0), tempo(2)),
    "1.5 times as fast": ((float(np.log2(1.5)), 0), tempo(1.5)),
    "1.5 times as slow": ((-float(np.log2(1.5)), 0), tempo(1 / 1.5)),
    "2 times as slow": ((-1, 0), tempo(1 / 2)),
    "half of the movement": ((0, -1), flattened(0.5)),
    "a fifth of the movement": ((0, float(np.log2(0.2))), flattened(0.2)),
    "slow, then fast again": ((0, 0), lambda samples: tempo(1.5)(tempo(1 / 1.5)(samples))),
    "fast, then slow again": ((0, 0), lambda samples: tempo(1 / 1.5)(tempo(1.5)(samples))),
    "all of the movement": ((0, 0), flattened(1.0)),
}
FALLEN = "the first second of 12 dB softer"
OUTPUTS = {"loudness": 0, "tempo": 1, "melody": 2}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clones", type=Path, required=True)
    parser.add_argument("--num", type=int, default=400, help="speakers of a source, at most")
    parser.add_argument("--folds", type=int, default=2, help="0: judge nothing")
    parser.add_argument("--write", action="store_true", help="write the weights that ship")
    options = options_of(parser)
    torch.set_num_threads(1)  # so that each run has the same sums
    found = list(readings(options))
    if options.folds:
        rows = judged(found, options.folds)
        print(table_of(rows))
        print(write("coach_net", rows))
    if options.write:
        every = [reading for _, reading in found]
        save(centred(net_of(every, "all"), every))


def readings(options: argparse.Namespace) -> Iterator[tuple[str, Reading]]:
    """Speakers of training's side, and their readings."""
    known = recordings.table()
    for source in known["source"]:
        own = defaultdict(list)
        for clip in recordings.clips(options.clones, source):
            if not clip.held:
                own[clip.speaker].append(clip)
        names = sorted(own)
        random.Random(1).shuffle(names)
        enough = [name for name in names if len(own[name]) >= 5][: options.num]
        for name in progress(enough, source["id"]):
            sound = sound_of(own[name][:MOST_CLIPS], known["filters"])
            if sound is not None and (reading := reading_of(sound)):
                yield name, reading


def sound_of(chosen: Sequence[Clip], filters: dict) -> Sound | None:
    """None where there is less than MIN_S."""
    parts: list[Sound] = []
    for _, samples in recordings.decoded(list(chosen), filters):
        part = trimmed(samples, EDGE_S)
        if part is not None and sum(map(len, parts)) < MOST_S * SAMPLE_RATE_HZ:
            parts.append(part.astype(np.float32))
    if sum(map(len, parts)) < MIN_S * SAMPLE_RATE_HZ:
        return None
    return joined(parts)[: MOST_S * SAMPLE_RATE_HZ]


def reading_of(sound: Sound) -> Reading | None:
    """None where there is too little speech."""
    plain = version_of(sound, (0, 0))
    if plain.speech.sum() < MIN_SPEECH_S * STEPS_PER_S:
        return None
    others = {name: each for name, each in CHANGES.items() if name != PLAIN}
    changed = {n: version_of(change(sound), octaves) for n, (octaves, change) in others.items()}
    return {PLAIN: plain} | changed


def version_of(samples: Sound, octaves: tuple[float, float]) -> Version:
    """As a coach hears it, but for F0, whose way is chosen when all is known."""
    track, mel, voice, pitch = turn_track(), MelFrames(), VoiceActivity(), PitchTrack()
    raws = Growing(NUM_MELS)
    for at in range(0, len(samples) // STEP_SAMPLES * STEP_SAMPLES, STEP_SAMPLES):
        piece = samples[at : at + STEP_SAMPLES]
        track.add_samples(piece)
        raw = mel.push(piece)
        track.add_mel(raw)
        raws.append(raw)
        track.add_speech(np.array([f.probability for f in voice.push(piece)], np.float32))
        track.add_pitch(pitch.push(piece))
    num = track.num_pitched // STEP_FRAMES * STEP_FRAMES
    frames = track.frames().until(num)
    steps = Steps.of(in_bands(raws.values[:num]), frames.level_db, frames.f0)
    return Version(steps, frames.speech.reshape(-1, STEP_FRAMES).all(1), octaves)


def judged(found: Sequence[tuple[str, Reading]], num_folds: int) -> list[dict[str, object]]:
    """How far each change moves the mean, in SDs of a second's mean, in folds."""
    moved: dict[str, list[np.ndarray]] = {name: [] for name in (*CHANGES, FALLEN) if name != PLAIN}
    spreads = []
    folds = np.array([zlib.crc32(name.encode()) % num_folds for name, _ in found])
    for fold in range(num_folds):
        net = net_of([r for (_, r), f in zip(found, folds, strict=True) if f != fold], str(fold))
        for i in np.flatnonzero(folds == fold):
            of = {name: parts_of(net.weights(), v) for name, v in found[i][1].items()}
            usual = [mean_of(part) for part in of[PLAIN]]
            spreads.append([spread_of(part) for part in of[PLAIN]])
            for name, each in moved.items():
                if name == FALLEN:
                    each.append(fallen(net.weights(), found[i][1][PLAIN]))
                else:
                    each.append(np.array([mean_of(part) for part in of[name]]) - usual)
    spread = np.sqrt(np.mean(spreads, 0))
    rows: list[dict[str, object]] = [
        {
            "change": name,
            **{n: float(np.median(each, 0)[i] / spread[i]) for n, i in OUTPUTS.items()},
        }
        for name, each in moved.items()
    ]
    kept = {name: float(spread[i]) for name, i in OUTPUTS.items()}
    return [{"change": "SD, dB and octaves", **kept}, *rows]


def parts_of(weights: Weights, version: Version) -> tuple[Part, ...]:
    """Values, and how much each counts."""
    said = heard(weights, version)
    others = [(values, np.ones_like(values)) for values in (said.tempo, said.melody)]
    return (said.loudness, said.trust), *others


def mean_of(part: Part) -> float:
    return float(np.average(part[0], weights=part[1]))


def fallen(weights: Weights, plain: Version) -> np.ndarray:
    """How far each output moves where the voice is softer for a second now and then."""
    is_soft = np.arange(len(plain.speech)) // STEPS_PER_S % FALL_EVERY_S == FALL_EVERY_S - 1
    gain = np.where(is_soft, np.float32(-SOFTER_DB), np.float32(0))
    steps = plain.steps
    soft = replace(steps, bands=steps.bands + gain[:, np.newaxis], level_db=steps.level_db + gain)
    pairs = [
        parts_of(weights, replace(plain, steps=each, speech=plain.speech & is_soft))
        for each in (soft, steps)
    ]
    return np.array([mean_of(a) - mean_of(b) for a, b in zip(*pairs, strict=True)])


def spread_of(part: Part) -> float:
    """The variance of a second's mean, of one that counts as much as most do."""
    seconds = Seconds(0.0)
    seconds.add(*part)
    return seconds.variance / float(part[1].mean())


def net_of(found: Sequence[Reading], name: str) -> Net:
    *_, net = tqdm(fitted(found), desc=name, total=EPOCHS, leave=False)
    return net


def save(weights: Weights) -> None:
    """In half precision."""
    arrays = {f"biases{i}": one.astype(np.float16) for i, one in enumerate(weights.biases)}
    arrays |= {f"kernels{i}": one.astype(np.float16) for i, one in enumerate(weights.kernels)}
    np.savez(WEIGHTS, **arrays)
    print(WEIGHTS)


if __name__ == "__main__":
    main()
