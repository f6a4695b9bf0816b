"""How often are filled pauses heard where there are none, and found where there are some?

`python -m bench.fillers --clones DIR`. False alarms: read speech of Common Voice, one recording of
each person, in the languages that the rule was not chosen on. It has hardly any filled pause, so
all that are found count as false. Recall: synthesised ones (espeak-ng), and a vowel of the person's
own made longer, at their own pitch and loudness, put into the same recordings. No free speech with
a transcript of its filled pauses was at hand, so precision and recall there are unknown.
"""

from __future__ import annotations

import argparse
import io
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import parselmouth
from parselmouth.praat import call

import streamer
from bench.common import options_of, table_of, write
from pipelines.embedded.recordings import Clip, clips, decoded, table
from pipelines.embedded.speak import SAMPLE_RATE, read

SOURCE = "Mozilla Common Voice 6.1, 59 languages"
SEEN = ("en", "zh", "yue")  # languages that the rule was chosen on
EACH = 4  # people of a language
SOUNDS = ("[[V:m]]", "[[3:]]", "[[@:m]]", "[[V:]]")
SILENCE_S = 0.2
Samples = np.ndarray

# name: (semitones that the pitch falls, silence before it, whether it is the person's own vowel)
KINDS = {
    "even, between two silences": (0.5, True, False),
    "even, silence after it": (0.5, False, False),
    "falling by 2 semitones, between two silences": (2.0, True, False),
    "a vowel of their own, between two silences": (1.0, True, True),
}


def chosen(clones: Path) -> list[Clip]:
    """One recording of each of EACH people of each language."""
    (source,) = (each for each in table()["source"] if each["credit"] == SOURCE)
    found: dict[str, dict[str, Clip]] = {}
    for clip in clips(clones, source):
        language = clip.path.split("/")[0]
        people = found.setdefault(language, {})
        if not language.startswith(SEEN) and len(people) < EACH:
            people.setdefault(clip.speaker, clip)
    return [clip for people in found.values() for clip in people.values()]


def spoken(sound: str) -> Samples:
    """One sound of espeak-ng at SAMPLE_RATE, without silence around it."""
    command = ["espeak-ng", "-v", "en", "-s", "80", "--stdout", sound]
    wav = subprocess.run(command, check=True, capture_output=True).stdout
    samples = read(io.BytesIO(wav))
    loud = np.flatnonzero(np.abs(samples) > 0.02)
    return samples[loud[0] : loud[-1]]


def vowel(person: Samples) -> Samples:
    """The loudest 0.12 s of somebody's speech."""
    num = int(0.12 * SAMPLE_RATE)
    at = max(
        range(0, len(person) - num, 160), key=lambda i: float(np.sum(person[i : i + num] ** 2))
    )
    return person[at : at + num]


def filler(sound: Samples, person: Samples, fall: float, rng: random.Random) -> Samples:
    """The sound as the person would say it: their median pitch or up to 2 semitones below, 0.28 to
    0.6 s, half to nine tenths of the amplitude of their louder half."""
    pitch = parselmouth.Sound(person.astype(float), SAMPLE_RATE).to_pitch()
    voiced = [hz for hz in pitch.selected_array["frequency"] if hz > 0]
    hz = float(np.median(voiced or [140.0])) * 2 ** (-rng.uniform(0, 2) / 12)
    said = parselmouth.Sound(sound.astype(float), SAMPLE_RATE)
    manner = call(said, "To Manipulation", 0.01, 60, 400)
    for tier, points in (
        ("pitch", ((0.0, hz), (said.duration, hz * 2 ** (-fall / 12)))),
        ("duration", ((0.0, rng.uniform(0.28, 0.6) / said.duration),)),
    ):
        of = call(manner, f"Extract {tier} tier")
        call(of, "Remove points between", 0, said.duration)
        for at, value in points:
            call(of, "Add point", at, value)
        call([of, manner], f"Replace {tier} tier")
    found = call(manner, "Get resynthesis (overlap-add)").values[0].astype(np.float32)
    loud = person[np.abs(person) > np.percentile(np.abs(person), 60)]
    gain = rng.uniform(0.5, 0.9) * np.sqrt(np.mean(loud**2)) / np.sqrt(np.mean(found**2))
    ramp = np.minimum(np.arange(len(found)), np.arange(len(found))[::-1]) / (0.03 * SAMPLE_RATE)
    return gain * np.minimum(1, ramp) * found


def with_filler(person: Samples, sound: Samples, is_apart: bool) -> tuple[Samples, float, float]:
    """The recording with the sound at its softest place, and where it is, in seconds."""
    step = SAMPLE_RATE // 10
    first = len(person) // 4
    places = range(first, len(person) - first - step, 160)
    at = min(places, key=lambda i: float(np.mean(person[i : i + step] ** 2))) + step // 2
    silence = np.resize(person[at - step // 2 : at + step // 2], int(SILENCE_S * SAMPLE_RATE))
    before = [silence] if is_apart else []
    begin = (at + sum(map(len, before))) / SAMPLE_RATE
    whole = np.concatenate([person[:at], *before, sound, silence, person[at:]])
    return whole, begin, begin + len(sound) / SAMPLE_RATE


def rows(clones: Path) -> Iterator[dict]:
    """The false alarms, then the recall of each kind."""
    rng, sounds = random.Random(0), [spoken(sound) for sound in SOUNDS]
    seconds, num_false, num_people = 0.0, 0, 0
    hits: dict[str, list[bool]] = {kind: [] for kind in KINDS}
    for clip, samples in decoded(chosen(clones)):
        num_people += 1
        seconds += len(samples) / SAMPLE_RATE
        num_false += len(streamer.filled_pauses((samples, SAMPLE_RATE)))
        kind = list(KINDS)[num_people % len(KINDS)]
        fall, is_apart, is_own = KINDS[kind]
        sound = filler(vowel(samples) if is_own else rng.choice(sounds), samples, fall, rng)
        whole, begin, end = with_filler(samples, sound, is_apart)
        found = streamer.filled_pauses((whole, SAMPLE_RATE)).times_s
        hits[kind].append(any(a < end and b > begin for a, b in found))
        if num_people % 20 == 0:
            print(f"{num_people} people, {clip.path}", flush=True)
    per_min = 60 * num_false / seconds
    yield {"what": "read speech", "num": num_people, "minutes": seconds / 60, "per_min": per_min}
    for kind, found in hits.items():
        yield {"what": kind, "num": len(found), "recall": sum(found) / len(found)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clones", type=Path, required=True, help="folder of the clones of people")
    options = options_of(parser)
    found = list(rows(options.clones))
    print(table_of(found, ("what", "num", "minutes", "per_min", "recall")))
    print("written:", write("fillers", found))


if __name__ == "__main__":
    main()
