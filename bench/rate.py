"""Which numbers make a syllable rate of a turn's envelope? Fitted on training's people.

    python -m bench.rate --clones DIR [--clips 3] [--num 400]

DIR: the clones of recordings.toml. Taken are `clips` of each speaker whose text is known, `num` of
a source at most; of the source with 59 languages all. A source weighs what it does among the
held-out people. The fit is of least absolute errors, by weighted least squares again and again.
Shown are the numbers of streamer/core/measures/nuclei.py and the mean error in five folds, apart by
speaker, or by language where there are many. `python -m bench.measures` judges them on held-out
people.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.common import progress, table, write
from bench.keep import options_of
from pipelines.embedded import recordings
from pipelines.embedded.mel import raw_log_mel
from pipelines.embedded.people_held import EDGE_S, trimmed
from pipelines.embedded.recordings import Clip
from pipelines.embedded.syllables import count
from streamer.core.measures.frames import SPEECH_SAMPLES
from streamer.core.measures.nuclei import beats, steps_db
from streamer.core.measures.turn_frames import Frames
from streamer.core.measures.turn_track import TurnTrack
from streamer.model.audio.pitch_track import HOP_SAMPLES, PitchTrack
from streamer.model.audio.vad import VoiceActivity

MANY = "common-voice-59"
SHARES = {MANY: 0.32, "common-voice-zh": 0.28, "speechocean762": 0.28}
REST_SHARE = 0.04  # each
NUM_FOLDS = 5
PLAUSIBLE = (1.5, 9.5)  # syllables/s; else the text is not what was said
MIN_ERROR = 0.15  # a smaller one weighs no more
NAMES = ("STEADY", "PER_NUCLEUS", "PER_DB", "PER_BEAT")

Doubles = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clones", type=Path, required=True)
    parser.add_argument("--clips", type=int, default=3, help="of each speaker")
    parser.add_argument("--num", type=int, default=400, help="clips of a source")
    options = options_of(parser)
    known = recordings.table()
    taken = [clip for source in known["source"] for clip in chosen(source, options)]
    decoded = recordings.decoded(progress(taken, "clips"), known["filters"])
    rows = [row for clip, samples in decoded if (row := of_clip(clip, samples))]
    weights = weights_of([clip.source for clip, _, _ in rows])
    folds = folds_of([c.said.language if c.source == MANY else c.speaker for c, _, _ in rows])
    rates, counts = np.array([row[1] for row in rows]), np.array([row[2] for row in rows])
    said = np.zeros(len(rates))
    for fold in range(NUM_FOLDS):
        mine = folds == fold
        said[mine] = counts[mine] @ fitted(counts[~mine], rates[~mine], weights[~mine])
    found = dict(zip(NAMES, fitted(counts, rates, weights).tolist(), strict=True))
    found["mean error in folds, syllables/s"] = np.average(np.abs(said - rates), weights=weights)
    print(table(["number", f"of {len(rows)} recordings"], [list(row) for row in found.items()]))
    print(write("rate", [{"name": name, "is": float(value)} for name, value in found.items()]))


def chosen(source: dict, options: argparse.Namespace) -> Iterator[Clip]:
    """Of training's side, with a text whose syllables can be counted."""
    num: Counter[str] = Counter()
    most = None if source["id"] == MANY else options.num
    for clip in recordings.clips(options.clones, source):
        if clip.held or not count(clip.said.text, clip.said.language):
            continue
        num[clip.speaker] += 1
        if num[clip.speaker] <= options.clips and (most is None or num.total() <= most):
            yield clip


def of_clip(clip: Clip, samples: np.ndarray) -> tuple[Clip, float, list[float]] | None:
    """(clip, its text's rate, what NAMES multiply); None where it is not usable."""
    sound = trimmed(samples, EDGE_S)
    syllables = count(clip.said.text, clip.said.language)
    if sound is None or not syllables:
        return None
    frames = frames_of(sound)
    seconds = frames.measures().speech_s
    if not PLAUSIBLE[0] < syllables / max(seconds, 0.1) < PLAUSIBLE[1]:
        return None
    moved = (steps_db(frames.vowel_db), beats(frames.vowel_db))
    sums = (len(frames.nuclei()), *(each[frames.speech].sum() for each in moved))
    return clip, syllables / seconds, [1.0, *(float(each) / seconds for each in sums)]


def frames_of(samples: np.ndarray) -> Frames:
    """Of a whole recording."""
    track, pitch = TurnTrack(HOP_SAMPLES), PitchTrack()
    track.add_samples(samples)
    track.add_mel(raw_log_mel(samples))
    judged = VoiceActivity().push(np.pad(samples, (0, -len(samples) % SPEECH_SAMPLES)))
    speech = track.add_speech(np.array([frame.probability for frame in judged], np.float32))
    track.add_pitch(np.concatenate([pitch.push(samples, speech), pitch.finish()]))
    return track.frames()


def weights_of(sources: list[str]) -> Doubles:
    num = Counter(sources)
    return np.array([SHARES.get(source, REST_SHARE) / num[source] for source in sources])


def folds_of(owners: list[str]) -> NDArray[np.int64]:
    """Of each recording: an owner is in one."""
    names = sorted(set(owners))
    np.random.default_rng(0).shuffle(names)
    fold = {name: i % NUM_FOLDS for i, name in enumerate(names)}
    return np.array([fold[owner] for owner in owners])


def fitted(counts: Doubles, rates: Doubles, weights: Doubles) -> Doubles:
    """The numbers [4] of least absolute error, for `counts` [n, 4]."""
    now = weights
    for _ in range(20):
        root = np.sqrt(now)[:, np.newaxis]
        found = np.linalg.lstsq(counts * root, rates * root[:, 0], rcond=None)[0]
        now = weights / np.maximum(np.abs(rates - counts @ found), MIN_ERROR)
    return found


if __name__ == "__main__":
    main()
