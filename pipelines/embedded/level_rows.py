"""Recordings of people with their true values and their measures, as they are and disturbed.

In: local clones. Out: a JSON line for each sound, which level_weights.py learns from.

The truth is that of the clean recording (labels.py: Praat's F0, the syllables of the text). A
disturbed sound is the same recording in noise, babble, a room, a codec, or clipped: what somebody
says has not changed, so its truth has not.
"""

import argparse
import json
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from tqdm import tqdm

from bench.people_changes import Heard, babble, noise, opus, room, telephone
from bench.people_clips import truth
from pipelines.embedded.labels import Measures
from pipelines.embedded.people_held import half, trimmed
from pipelines.embedded.rate_data import PLAUSIBLE
from pipelines.embedded.recordings import Clip, by_speaker, decoded, table
from pipelines.embedded.speak import SAMPLE_RATE
from pipelines.embedded.syllables import count
from streamer.model.audio.turns import measure

SHARES = {"common-voice-59": 0.32, "common-voice-zh": 0.28, "speechocean762": 0.24}
REST_SHARE = 0.04  # each
EDGES_S = (0.15, 0.5, 1.0)  # kept around the speech
SEED = 0
VOICES = 5  # in the babble, of the recordings before
SIDES = ("train", "calibrates", "checks")


def side_of(clip: Clip) -> str:
    """Training's people, or one of the two halves of the held-out people."""
    return SIDES[1 + half(clip.speaker)] if clip.held else SIDES[0]


def speakers(clones: Path, side: str, num: int) -> list[list[Clip]]:
    """About `num` speakers of a side, of all sources, with at most four clips each."""
    chance = random.Random(SEED)
    found = []
    for source in table()["source"]:
        own = by_speaker(clones, source, lambda clip: side_of(clip) == side)
        chosen = list(own)
        chance.shuffle(chosen)
        share = SHARES.get(source["id"], REST_SHARE)
        found += [own[name][:4] for name in chosen[: round(share * num)]]
    chance.shuffle(found)
    return found


def disturbed(clean: np.ndarray, level_db: float, others: list[np.ndarray], seed: int) -> dict:
    """name -> the same sound in noise, in babble of `others`, and with one more change that is drawn:
    a room, a telephone, Opus or clipping."""
    chance = np.random.default_rng(seed)
    heard = Heard(clean, level_db, others, chance)
    exponent, snr_db = chance.uniform(0, 0.75), chance.uniform(0, 30)
    found = {"noise": noise(heard, snr_db, exponent)}
    if len(others) == VOICES:
        found["babble"] = babble(heard, chance.uniform(0, 25))
    match chance.integers(4):
        case 0:
            found["room"] = room(heard, (0.5, 2.0), (0.2, 0.6))[: len(clean)]
        case 1:
            found["telephone"] = telephone(heard)
        case 2:
            found["opus"] = opus(heard)
        case 3:
            gain = np.quantile(np.abs(clean), 1 - chance.uniform(0.003, 0.05))
            found["clipped"] = np.clip(clean / max(gain, 1e-3), -1, 1).astype(np.float32)
    return found


def row_of(clip: Clip, change: str, known: Measures, samples: np.ndarray) -> dict:
    found = measure(samples.astype(np.float32))
    facts = {"side": side_of(clip), "speaker": clip.speaker[:16], "source": clip.source}
    true = {name: round(value, 5) for name, value in vars(known).items() if not np.isnan(value)}
    facts |= {"language": clip.said.language, "change": change, "true": true}
    return facts | found.as_json()


def sounds(own: list[Clip], chance: random.Random) -> Iterator[tuple]:
    """(clip, samples, syllables) of one speaker: recordings as they are, some joined, some cut."""
    parts = []
    for clip, samples in decoded(own):
        sound = trimmed(samples, chance.choice(EDGES_S))
        if sound is not None:
            parts.append((clip, sound, count(clip.said.text, clip.said.language)))
    for clip, sound, syllables in parts[:2]:
        yield clip, sound[: 55 * SAMPLE_RATE], syllables
    if parts and chance.random() < 0.25:
        clip, sound, _ = parts[-1]
        yield clip, sound[: int(chance.uniform(0.8, 3.0) * SAMPLE_RATE)], None
    if len(parts) > 2:
        known = all(n for *_, n in parts)
        joined = np.concatenate([sound for _, sound, _ in parts])
        yield parts[0][0], joined, sum(n for *_, n in parts) if known else None


def rows(clones: Path, side: str, num: int) -> Iterator[dict]:
    chance = random.Random(SEED)
    others: deque[np.ndarray] = deque(maxlen=VOICES)
    for i, own in enumerate(tqdm(speakers(clones, side, num), desc=side)):
        for k, (clip, samples, syllables) in enumerate(sounds(own, chance)):
            try:
                true = truth(samples, syllables)
            except (ValueError, IndexError):
                continue
            if not syllables or not PLAUSIBLE[0] < true.rate < PLAUSIBLE[1]:
                true = replace(true, rate=np.nan, arousal=np.nan)
            yield row_of(clip, "none", true, samples)
            heard = disturbed(samples, true.loudness, list(others), 100 * i + k)
            for change, sound in heard.items():
                of_sound = true
                if change == "clipped":  # its loudness without clipping is unknown
                    of_sound = replace(true, loudness=np.nan, arousal=np.nan)
                yield row_of(clip, change, of_sound, sound)
            others.append(samples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clones", type=Path, required=True)
    parser.add_argument("--side", choices=SIDES, required=True)
    parser.add_argument("--num", type=int, default=300, help="speakers")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one for each sound")
    args = parser.parse_args()
    part = args.out.with_name(args.out.name + ".part")
    with part.open("w") as file:
        for row in rows(args.clones, args.side, args.num):
            file.write(json.dumps(row) + "\n")
            file.flush()
    part.rename(args.out)


if __name__ == "__main__":
    main()
