"""A folder of held-out people: 16 kHz wav files and manifest.jsonl, for bench/people.py.

Single clips as they were recorded, with 0.15 s kept around the speech, and clips of one speaker
joined to 10, 30 and 60 s, each with its own silence.
"""

import json
import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import soundfile
from tqdm import tqdm

from pipelines.embedded.labels import speech_frames
from pipelines.embedded.recordings import Clip, by_speaker, decoded, table
from pipelines.embedded.speak import SAMPLE_RATE
from pipelines.embedded.syllables import count

EDGE_S = 0.15
JOINED_S = {10: 40, 30: 40, 60: 40}  # seconds: how many
PER_SPEAKER = {
    "common-voice-zh": 6,
    "common-voice-59": 1,
    "speechocean762": 4,
    "librispeech-sample": 1,
    "librispeech-other": 4,
    "aishell1-sample": 15,
    "aishell3-sample": 1,
    "common-voice-en-18": 3,
    "common-voice-en-20": 3,
    "common-voice-fa": 2,
    "common-voice-tw": 2,
}
JOINED_FROM = ("common-voice-zh", "speechocean762", "librispeech-other", "aishell1-sample")


def trimmed(samples: np.ndarray, edge_s: float) -> np.ndarray | None:
    """Speech with at most `edge_s` of what is around it; None where less than 1.2 s of speech is
    found."""
    heard = np.flatnonzero(speech_frames(samples))
    if len(heard) < 120:
        return None
    edge = int(edge_s * SAMPLE_RATE)
    return samples[max(0, heard[0] * 160 - edge) : (heard[-1] + 1) * 160 + edge]


def row(clip: Clip, samples: np.ndarray, name: str) -> dict:
    said = clip.said
    return {
        "wav": f"wav/{name}.wav",
        "kind": "clip",
        "speaker": said.speaker[:16],
        "source": clip.source,
        "language": said.language,
        "sex": said.sex or None,
        "text": said.text or None,
        "syllables": count(said.text, said.language),
        "seconds": round(len(samples) / SAMPLE_RATE, 3),
    }


def join(
    rows: list[tuple[dict, np.ndarray]], seconds: float, rng: random.Random
) -> tuple[dict, np.ndarray] | None:
    """Clips of one speaker in random order, about `seconds` in all; None where there are too
    few."""
    parts, chosen, total = [], [], 0
    for facts, samples in rng.sample(rows, len(rows)):
        if total + len(samples) <= 1.05 * seconds * SAMPLE_RATE:
            parts.append(samples)
            chosen.append(facts)
            total += len(samples)
    if total < 0.85 * seconds * SAMPLE_RATE:
        return None
    known = all(facts["syllables"] for facts in chosen)
    texts = [facts["text"] for facts in chosen]
    whole = {
        **chosen[0],
        "kind": f"joined-{seconds}",
        "text": " ".join(texts) if all(texts) else None,
        "syllables": sum(facts["syllables"] for facts in chosen) if known else None,
    }
    return whole, np.concatenate(parts)


def write(
    clones: Path,
    out: Path,
    wanted: Callable[[Clip], bool] = lambda clip: clip.held,
    singles: Mapping[str, int] = PER_SPEAKER,
    joined: Mapping[int, int] = JOINED_S,
) -> None:
    """Write the folder, always the same for the same clones. singles: single clips of each speaker
    of a source; joined: seconds of a joined turn, and how many there are at most."""
    known = table()
    (out / "wav").mkdir(parents=True, exist_ok=True)
    rows, whole = [], defaultdict(list)
    for source in known["source"]:
        if source.get("side") == "train" or source["id"] not in singles:
            continue
        single, longer = singles[source["id"]], 12 if source["id"] in JOINED_FROM else 0
        held = by_speaker(clones, source, wanted)
        for speaker, own in tqdm(held.items(), desc=source["id"]):
            chosen = own[: max(single + 2, longer)]
            rows += _single(chosen, single, known["filters"], out, whole[speaker], len(rows))
    rows += _joined(whole, out, joined)
    (out / "manifest.jsonl").write_text(
        "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows), "utf-8"
    )
    people = {r["speaker"] for r in rows}
    print(f"{len(rows)} recordings of {len(people)} people in {out}")


def _single(
    chosen: list[Clip], number: int, filters: dict, out: Path, pool: list, first: int
) -> list[dict]:
    rows = []
    for clip, samples in decoded(chosen, filters):
        narrow, wide = trimmed(samples, EDGE_S), trimmed(samples, 0.5)
        if narrow is None:
            continue
        if clip.source in JOINED_FROM:
            pool.append((row(clip, wide, ""), wide))
        if len(rows) < number:
            rows.append(_save(row(clip, narrow, f"{first + len(rows):04d}"), narrow, out))
    return rows


def _joined(whole: dict, out: Path, joined: Mapping[int, int]) -> list[dict]:
    rows, rng = [], random.Random(3)
    for seconds, number in joined.items():
        speakers = sorted(whole)
        rng.shuffle(speakers)
        made = (join(whole[speaker], seconds, rng) for speaker in speakers if whole[speaker])
        for facts, samples in [found for found in made if found][:number]:
            name = f"joined{seconds}-{len(rows):03d}"
            facts = {
                **facts,
                "wav": f"wav/{name}.wav",
                "seconds": round(len(samples) / SAMPLE_RATE, 3),
            }
            rows.append(_save(facts, samples, out))
    return rows


def _save(facts: dict, samples: np.ndarray, out: Path) -> dict:
    soundfile.write(out / facts["wav"], np.clip(samples, -1, 1), SAMPLE_RATE, subtype="PCM_16")
    return facts
