"""A folder of held-out people: 16 kHz wav files and manifest.jsonl, for bench/people.py.

Single clips as they were recorded, with 0.15 s kept around the speech, and clips of one speaker
joined to 10, 30 and 60 s, each with its own silence. With --half, the recordings of the gate: half
0 of the people calibrates it, half 1 checks it.
"""

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import soundfile
from tqdm import tqdm

from pipelines.embedded.labels import speech_frames
from pipelines.embedded.recordings import Clip, by_speaker, decoded, hashed, table
from pipelines.embedded.speak import SAMPLE_RATE
from pipelines.embedded.syllables import count

EDGE_S = 0.15
JOINED_S = {10: 40, 30: 40, 60: 40}  # seconds: how many
JOINED_OF_GATE = {30: 60, 60: 60}


def half(speaker: str) -> int:
    """0 calibrates the gate, 1 checks it."""
    return hashed(f"streamer-gate:{speaker}") % 2


def trimmed(samples: np.ndarray, edge_s: float) -> np.ndarray | None:
    """Speech with at most `edge_s` of what is around it; None where less than 1.2 s of speech is
    found."""
    heard = np.flatnonzero(speech_frames(samples))
    if len(heard) < 120:
        return None
    edge = int(edge_s * SAMPLE_RATE)
    return samples[max(0, heard[0] * 160 - edge) : (heard[-1] + 1) * 160 + edge]


def row(clip: Clip) -> dict:
    said = clip.said
    return {
        "kind": "clip",
        "speaker": said.speaker[:16],
        "source": clip.source,
        "language": said.language,
        "sex": said.sex or None,
        "text": said.text or None,
        "syllables": count(said.text, said.language),
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
    texts, numbers = ([facts[name] for facts in chosen] for name in ("text", "syllables"))
    whole = {**chosen[0], "kind": f"joined-{seconds}"}
    whole["text"] = " ".join(texts) if all(texts) else None
    whole["syllables"] = sum(numbers) if all(numbers) else None
    return whole, np.concatenate(parts)


def write(clones: Path, out: Path, part: int | None = None) -> None:
    """Write the folder, always the same for the same clones; of one half of the people alone, the
    fewer recordings of the gate."""

    def wanted(clip: Clip) -> bool:
        return clip.held and part in (None, half(clip.speaker))

    singles = "singles" if part is None else "gate_singles"
    (out / "wav").mkdir(parents=True, exist_ok=True)
    rows, whole = [], defaultdict(list)
    for source in table()["source"]:
        if singles not in source:
            continue
        single, longer = source[singles], 12 if source.get("joins") else 0
        held = by_speaker(clones, source, wanted)
        for speaker, own in tqdm(held.items(), desc=source["id"]):
            heard = decoded(own[: max(single + 2, longer)])
            usable = [(row(c), s, wide) for c, s in heard if (wide := trimmed(s, 0.5)) is not None]
            for facts, samples, _ in usable[:single]:
                rows.append(_saved(facts, trimmed(samples, EDGE_S), out, f"{len(rows):04d}"))
            whole[speaker] += [(facts, wide) for facts, _, wide in usable if longer]
    rows += _joined(whole, out, JOINED_S if part is None else JOINED_OF_GATE)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (out / "manifest.jsonl").write_text(lines, "utf-8")
    people = {r["speaker"] for r in rows}
    print(f"{len(rows)} recordings of {len(people)} people in {out}")


def _joined(whole: dict, out: Path, joined: Mapping[int, int]) -> list[dict]:
    rows, rng = [], random.Random(3)
    for seconds, number in joined.items():
        speakers = sorted(whole)
        rng.shuffle(speakers)
        made = (join(whole[speaker], seconds, rng) for speaker in speakers if whole[speaker])
        for facts, samples in [found for found in made if found][:number]:
            rows.append(_saved(facts, samples, out, f"joined{seconds}-{len(rows):03d}"))
    return rows


def _saved(facts: dict, samples: np.ndarray, out: Path, name: str) -> dict:
    facts = {**facts, "wav": f"wav/{name}.wav", "seconds": round(len(samples) / SAMPLE_RATE, 3)}
    soundfile.write(out / facts["wav"], np.clip(samples, -1, 1), SAMPLE_RATE, subtype="PCM_16")
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clones", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--half", type=int, choices=(0, 1), help="of the people, for the gate")
    args = parser.parse_args()
    if not (args.out / "manifest.jsonl").exists():
        write(args.clones, args.out, args.half)


if __name__ == "__main__":
    main()
