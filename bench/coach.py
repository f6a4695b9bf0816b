"""How soon does the coach say a word, and how often for nothing? On recordings of held-out people.

    python -m bench.coach --people DIR [--side reported|tuned] [--num 20] [--keep]

DIR: recordings of held-out people with manifest.jsonl, as `python -m pipelines.embedded.recordings
--held-out DIR` writes them. Each speaker's recordings are joined to one reading, all as loud as the
first. Nudges in a reading are false ones. Then the reading is changed at a known time: its tempo
and its pitch by PSOLA (Praat), its level, its end; the delay is from there to the nudge.

The coach's numbers were chosen on half of the speakers, by the hash of their names; --side reported
is the other half.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import parselmouth
import soundfile
from parselmouth.praat import call

from bench.common import progress, table, write
from bench.keep import options_of
from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.coach.baseline import Baseline
from streamer.core.coach.coach import Coach
from streamer.core.coach.coaching import CoachEvent
from streamer.core.coach.nudger import Nudge
from streamer.model.audio.coach_ear import CoachEar

MIN_S = 58.0  # of a reading: half a minute is learnt from
BEFORE_S = 16.0  # of the reading in front of a change, and
AFTER_S = 12.0  # behind it
GAP_S = 0.4  # between two recordings
KINDS = ("joined-60", "joined-30", "joined-10")
Sound = np.ndarray


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=Path, required=True)
    parser.add_argument("--side", choices=["reported", "tuned"], default="reported")
    parser.add_argument("--num", type=int, default=20, help="speakers")
    options = options_of(parser)
    found = [of_reading(each) for each in progress(list(readings(options)), "speakers")]
    rows = [false_nudges(found), *delays(found)]
    header = ["what", "speakers", "figure", "p50", "p95", "told within 12 s"]
    print(table(header, [list(row.values()) for row in rows]))
    if options.side == "reported":
        print(write("coach", rows))


@dataclass(frozen=True)
class Reading:
    """One speaker's recordings, joined: samples [n] at 16 kHz."""

    speaker: str
    samples: Sound


@dataclass(frozen=True)
class Found:
    """Of one reading: minutes behind the learning and the nudges there; change -> seconds to its
    nudge, None where none came."""

    minutes: float
    nudges: list[Nudge]
    delays: dict[str, float | None]


def readings(options: argparse.Namespace) -> Iterator[Reading]:
    """Of the side's speakers who have enough."""
    own = defaultdict(list)
    for line in (options.people / "manifest.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        if row["kind"] in KINDS and side_of(row["speaker"]) == options.side:
            own[row["source"], row["speaker"]].append(row)
    enough = {k: rows for k, rows in own.items() if sum(r["seconds"] for r in rows) >= MIN_S}
    every = max(1, len(enough) // options.num)  # of every language
    for (_, speaker), rows in sorted(enough.items())[::every][: options.num]:
        parts = [soundfile.read(options.people / row["wav"], dtype="float32")[0] for row in rows]
        yield Reading(speaker, joined(parts))


def side_of(speaker: str) -> str:
    digest = hashlib.sha256(speaker.encode()).digest()
    return "tuned" if digest[0] % 2 else "reported"


def joined(parts: list[Sound]) -> Sound:
    """One after another, with gaps that hold the quietest of the first, all as loud as it."""
    room = min(np.split(parts[0], range(800, len(parts[0]), 800))[:-1], key=lambda p: (p**2).sum())
    gap = np.resize(room, int(GAP_S * SAMPLE_RATE_HZ))
    loud = loudness(parts[0])
    return np.concatenate([x for p in parts for x in (p * (loud / loudness(p)), gap)], dtype="f4")


def loudness(samples: Sound) -> float:
    """Root mean square of what is within 25 dB of the loudest frames."""
    power = (np.resize(samples, (len(samples) // 320, 320)) ** 2).mean(1)
    return float(np.sqrt(power[power > np.percentile(power, 95) / 300].mean()))


def of_reading(reading: Reading) -> Found:
    steady = heard(reading.samples, Coach())
    learnt_s = next((e.t_s for e in steady if hasattr(e, "baseline")), None)
    assert learnt_s is not None, f"{reading.speaker}: no baseline"
    baseline = next(e.baseline for e in steady if hasattr(e, "baseline"))
    minutes = (len(reading.samples) / SAMPLE_RATE_HZ - learnt_s) / 60
    delays = {name: delay(reading, learnt_s, baseline, name) for name in CHANGES}
    return Found(minutes, [e for e in steady if isinstance(e, Nudge)], delays)


def heard(samples: Sound, coach: Coach) -> list[CoachEvent]:
    ear = CoachEar(coach)
    events = []
    for at in range(0, len(samples), SAMPLE_RATE_HZ):
        ear.push(samples[at : at + SAMPLE_RATE_HZ])
        events += ear.work()
    return events


def delay(reading: Reading, learnt_s: float, baseline: Baseline, name: str) -> float | None:
    """Seconds from the change to its nudge, for a speaker whose baseline is known."""
    kind, change = CHANGES[name]
    at = int(max(BEFORE_S, learnt_s) * SAMPLE_RATE_HZ)
    before = reading.samples[at - int(BEFORE_S * SAMPLE_RATE_HZ) : at]
    after = change(reading.samples[at : at + int(2 * AFTER_S * SAMPLE_RATE_HZ)])
    after = after[: int(AFTER_S * SAMPLE_RATE_HZ)]
    events = heard(np.concatenate([before, after], dtype="f4"), Coach(baseline=baseline))
    due_s = BEFORE_S + (Coach().silence_s if kind == "long_silence" else 0.0)
    told = [e.t_s - due_s for e in events if isinstance(e, Nudge) and e.kind == kind]
    return next((max(t, 0.0) for t in told if t > -BEFORE_S / 8), None)


def tempo(factor: float) -> Callable[[Sound], Sound]:
    """So many times as fast, at the same pitch."""

    def change(samples: Sound) -> Sound:
        sound = parselmouth.Sound(samples.astype(float), SAMPLE_RATE_HZ)
        changed = call(sound, "Lengthen (overlap-add)", 75, 500, 1 / factor)
        return changed.values[0].astype(np.float32)

    return change


def flattened(samples: Sound) -> Sound:
    """The same words on one pitch, which moves by a fifth of what it did."""
    sound = parselmouth.Sound(samples.astype(float), SAMPLE_RATE_HZ)
    manipulation = call(sound, "To Manipulation", 0.01, 75, 500)
    tier = call(manipulation, "Extract pitch tier")
    middle = call(sound.to_pitch(), "Get quantile", 0, 0, 0.5, "Hertz")
    call(tier, "Formula", f"{middle} * (self / {middle}) ^ 0.2")
    call([tier, manipulation], "Replace pitch tier")
    return call(manipulation, "Get resynthesis (overlap-add)").values[0].astype(np.float32)


CHANGES: dict[str, tuple[str, Callable[[Sound], Sound]]] = {
    "1.3 times as fast": ("too_fast", tempo(1.3)),
    "1.5 times as fast": ("too_fast", tempo(1.5)),
    "2 times as fast": ("too_fast", tempo(2.0)),
    "1.5 times as slow": ("too_slow", tempo(1 / 1.5)),
    "12 dB softer": ("too_soft", lambda samples: samples * np.float32(10 ** (-12 / 20))),
    "18 dB softer": ("too_soft", lambda samples: samples * np.float32(10 ** (-18 / 20))),
    "a fifth of the movement": ("flat", flattened),
    "silence": ("long_silence", lambda samples: samples * np.float32(1e-3)),
}


def false_nudges(found: list[Found]) -> dict[str, Any]:
    minutes = sum(each.minutes for each in found)
    num = sum(len(each.nudges) for each in found)
    kinds = sorted({n.kind for each in found for n in each.nudges})
    counts = {k: sum(n.kind == k for each in found for n in each.nudges) for k in kinds}
    return {
        "change": f"none, {minutes:.0f} minutes",
        "speakers": len(found),
        "figure": f"false nudges in 10 minutes: {10 * num / minutes:.1f} {counts}",
        "p50": "",
        "p95": "",
        "told": "",
    }


def delays(found: list[Found]) -> Iterator[dict[str, Any]]:
    """A change that is not told counts as one that is told never."""
    for name in CHANGES:
        waits = [each.delays[name] for each in found]
        known = [np.inf if wait is None else wait for wait in waits]
        yield {
            "change": name,
            "speakers": len(waits),
            "figure": "seconds to the nudge",
            "p50": percentile(known, 50),
            "p95": percentile(known, 95),
            "told": float(np.mean(np.isfinite(known))),
        }


def percentile(waits: list[float], share: float) -> float | str:
    found = float(np.percentile(waits, share, method="higher"))
    return found if np.isfinite(found) else "none"


if __name__ == "__main__":
    main()
