"""What bench/coach.py listens to. In: recordings with manifest.jsonl. Out: one reading for each
speaker, and what of it is read before a change and behind it."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from bench.coach_changes import Sound
from pipelines.embedded.speech import speech_frames
from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.measures.frames import HOP_SAMPLES, active_level

BEFORE_S = 3.0  # of the reading in front of a change, and
AFTER_S = 12.0  # behind it
CHANGES_S = 18.0  # one change in so many seconds
MAX_CHANGES = 2  # of a kind, in a reading
GAP_S = 0.4  # between two recordings
SPEECH_SAMPLES = SAMPLE_RATE_HZ // 5  # that are loud where a change begins


@dataclass(frozen=True)
class Reading:
    """One speaker's recordings, joined: samples [n] at 16 kHz."""

    speaker: str
    samples: Sound


def readings(folder: Path, options: argparse.Namespace) -> Iterator[Reading]:
    """Of the side's speakers, each recording once."""
    lines = (folder / "manifest.jsonl").read_text("utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["kind"] == "reading"]
    if not rows:
        raise SystemExit(f"bench.coach: {folder} holds no readings; write it anew")
    own = [row for row in rows if side_of(row["speaker"]) == options.side]
    every = max(1, len(own) // options.num)  # of every language
    for row in sorted(own, key=lambda row: (row["source"], row["speaker"]))[::every]:
        samples, _ = soundfile.read(folder / row["wav"], dtype="float32")
        yield Reading(row["speaker"], joined(np.split(samples, row["cuts"])))


def side_of(speaker: str) -> str:
    digest = hashlib.sha256(speaker[:16].encode()).digest()  # a manifest may cut names
    return "tuned" if digest[0] % 2 else "reported"


def joined(parts: list[Sound]) -> Sound:
    """One after another, with gaps that hold the quietest of the first, all as loud as it."""
    room = min(np.split(parts[0], range(800, len(parts[0]), 800))[:-1], key=lambda p: (p**2).sum())
    gap = np.resize(room, int(GAP_S * SAMPLE_RATE_HZ))
    loud = loudness(parts[0])
    return np.concatenate([x for p in parts for x in (p * (loud / loudness(p)), gap)], dtype="f4")


def loudness(samples: Sound) -> float:
    """Root mean square of speech, as measures hear it: a click or a breath is none."""
    power = (np.resize(samples, (len(samples) // HOP_SAMPLES, HOP_SAMPLES)) ** 2).mean(1)
    speech = speech_frames(samples)[: len(power)]
    return float(10 ** (active_level(power, speech)[0] / 20))


def pieces_of(samples: Sound) -> Iterator[tuple[Sound, Sound]]:
    """What is read before a change and behind it: a change comes while somebody speaks."""
    level = loudness(samples)
    steps = np.resize(samples, (len(samples) // SPEECH_SAMPLES, SPEECH_SAMPLES))
    frames = SPEECH_SAMPLES // HOP_SAMPLES
    speech = np.resize(speech_frames(samples), (len(steps), frames)).all(1)  # no click, no breath
    loud = np.flatnonzero(speech & ((steps**2).mean(1) > (level / 5) ** 2)) * SPEECH_SAMPLES
    room = [at for at in loud if len(samples) - at >= AFTER_S * SAMPLE_RATE_HZ]
    for i in range(MAX_CHANGES):
        later = [at for at in room if at >= (BEFORE_S + i * CHANGES_S) * SAMPLE_RATE_HZ]
        if later:
            before = samples[later[0] - int(BEFORE_S * SAMPLE_RATE_HZ) : later[0]]
            yield before, samples[later[0] : later[0] + int(2 * AFTER_S * SAMPLE_RATE_HZ)]
