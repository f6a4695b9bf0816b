"""How soon does the coach say a word, and how often for nothing? On recordings of people.

    python -m bench.coach --people DIR... [--side reported|tuned] [--num 20] [--changed 20]
        [--noise DB] [--sureness NATS] [--keep]

DIR: recordings with manifest.jsonl, as `python -m pipelines.embedded.recordings --held-out DIR`
writes them. Each speaker's recordings, each once, are joined to a reading, as loud as its first.
Nudges in a reading are false ones; "at most" is what bounds them in 19 of 20 such runs. Then it is
changed at known times, while somebody speaks: its tempo and its pitch by PSOLA (Praat), its level,
its end; the delay is from there to the nudge. "Spoken" is the p95 of it without the pauses.

A change is weighed, too: its evidence is half the square of how far the mean of a second moves, in
SDs, each second. A test that tells one kind once in 40 minutes for nothing (four kinds: once in 10)
needs ln 2,400 nats on average: that, over the evidence, is the bound, which no test goes under
(Lorden, 1971). Of loudness a second is one whose every step counts as 1.

--noise: pink noise so many dB under the speech, which stays as it is when the voice changes.
--sureness: of another coach than the default: what sooner words cost.
--side: halves of the speakers, by the hash of their names. The coach's numbers were chosen with
both in view.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import chi2

from bench.coach_changes import CHANGES, Room, Sound
from bench.coach_readings import AFTER_S, BEFORE_S, Reading, loudness, pieces_of, readings
from bench.common import options_of, progress, table, write
from pipelines.embedded.speech import speech_frames
from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.coach.baseline import Baseline
from streamer.core.coach.coach import Coach
from streamer.core.coach.coaching import BaselineKnown, CoachEvent, CoachNews
from streamer.core.coach.nudger import Nudge
from streamer.core.measures.frames import HOP_SAMPLES
from streamer.model.audio.coach_ear import CoachEar

NATS = float(np.log(40 * 60))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=Path, required=True, nargs="+")
    parser.add_argument("--side", choices=["reported", "tuned"], default="reported")
    parser.add_argument("--num", type=int, default=100, help="speakers of a folder")
    parser.add_argument("--changed", type=int, default=20, help="readings that are changed, too")
    parser.add_argument("--noise", type=float, help="dB under the speech; none: no noise")
    parser.add_argument("--sureness", type=float, default=Coach().sureness, help="as the coach's")
    options = options_of(parser)
    coach = Coach(sureness=options.sureness)
    read = [each for folder in options.people for each in readings(folder, options)]
    every = max(1, len(read) // options.changed)
    found = [
        of_reading(each, i % every == 0, room_of(each, options.noise), coach)
        for i, each in enumerate(progress(read, "readings"))
    ]
    rows = [false_nudges(found), *delays([each for each in found if each.delays])]
    names = "what, speakers, changes, figure, p50, p95, spoken, in 1.5 s, in 12 s, bound"
    print(table(names.split(", "), [list(row.values()) for row in rows]))
    if options.side == "reported" and options.noise is None and coach == Coach():
        print(write("coach", rows))


@dataclass(frozen=True)
class Found:
    """Of one reading: minutes behind the learning and the nudges there; change -> seconds to its
    nudges, and how many of them are speech, inf where none came; -> its evidence in nats a
    second."""

    speaker: str
    minutes: float
    nudges: list[Nudge]
    delays: dict[str, list[tuple[float, float]]]
    evidence: dict[str, float]


def room_of(reading: Reading, under_db: float | None) -> Room:
    return Room() if under_db is None else Room(loudness(reading.samples) * 10 ** (-under_db / 20))


def of_reading(reading: Reading, is_changed: bool, room: Room, coach: Coach) -> Found:
    steady = heard(room.of(reading.samples), coach)
    known = next((event for event in steady if isinstance(event, BaselineKnown)), None)
    if known is None:  # too little speech
        return Found(reading.speaker, 0.0, [], {}, {})
    minutes = (len(reading.samples) / SAMPLE_RATE_HZ - known.t_s) / 60
    nudges = [e for e in steady if isinstance(e, Nudge)]
    if not is_changed:
        return Found(reading.speaker, minutes, nudges, {}, {})
    begin = int(known.t_s * SAMPLE_RATE_HZ)
    pieces = list(pieces_of(reading.samples[begin:]))
    usual = known.baseline
    knows = replace(coach, baseline=usual)
    delays = {name: [delay(piece, knows, name, room) for piece in pieces] for name in CHANGES}
    rest = reading.samples[begin : begin + int(2 * AFTER_S * SAMPLE_RATE_HZ)]
    evidence = {name: evidence_of(rest, usual, name, room) for name in CHANGES}
    return Found(reading.speaker, minutes, nudges, delays, evidence)


def heard(samples: Sound, coach: Coach, kind: str = "") -> list[CoachEvent]:
    """All that the coach says, or until it says a nudge of this kind."""
    ear = CoachEar(coach)
    events: list[CoachEvent] = []
    for at in range(0, len(samples), SAMPLE_RATE_HZ):
        ear.push(samples[at : at + SAMPLE_RATE_HZ])
        events += [event for event in ear.work() if not isinstance(event, CoachNews)]
        if any(isinstance(event, Nudge) and event.kind == kind for event in events):
            break
    return events


def delay(piece: tuple[Sound, Sound], coach: Coach, name: str, room: Room) -> tuple[float, float]:
    """Seconds from the change to its nudge, and seconds of speech among them, by a coach that knows
    the speaker."""
    kind, change = CHANGES[name]
    before, after = piece
    changed = change(after)[: int(AFTER_S * SAMPLE_RATE_HZ)]
    sound = room.of(np.concatenate([before, changed], dtype="f4"))
    events = heard(sound, coach, kind)
    due_s = BEFORE_S + (coach.silence_s if kind == "long_silence" else 0.0)
    told = [e.t_s for e in events if isinstance(e, Nudge) and e.kind == kind]
    told_s = next((t for t in told if t > BEFORE_S), None)
    if told_s is None:
        return np.inf, np.inf
    begin, end = (int(t * SAMPLE_RATE_HZ / HOP_SAMPLES) for t in (BEFORE_S, told_s))
    spoken = speech_frames(sound)[begin:end]
    return max(told_s - due_s, 0.0), float(spoken.sum()) * HOP_SAMPLES / SAMPLE_RATE_HZ


def evidence_of(samples: Sound, usual: Baseline, name: str, room: Room) -> float:
    """Nats in a second of speech, of the mean of all that follows; nan for a silence."""
    kind, change = CHANGES[name]
    if kind == "long_silence":
        return np.nan
    ear = CoachEar(Coach())
    ear.push(room.of(change(samples)[: int(2 * AFTER_S * SAMPLE_RATE_HZ)]))
    ear.work()
    if ear.baseline is None:
        return np.nan
    said = {"too_soft": "loudness", "flat": "melody"}.get(kind, "tempo")
    unit = "db" if kind == "too_soft" else "octaves"
    measure, sd = f"{said}_{unit}", getattr(usual, f"{said}_sd_{unit}")
    return ((getattr(ear.baseline, measure) - getattr(usual, measure)) / sd) ** 2 / 2


def false_nudges(found: list[Found]) -> dict[str, Any]:
    minutes = sum(each.minutes for each in found)
    kinds = Counter(nudge.kind for each in found for nudge in each.nudges)
    rate = 10 * kinds.total() / minutes
    at_most = 10 * float(chi2.ppf(0.95, 2 * kinds.total() + 2)) / 2 / minutes
    return {
        "change": f"none, {minutes:.0f} minutes",
        "speakers": len({each.speaker for each in found}),
        "changes": 0,
        "figure": f"false nudges in 10 minutes: {rate:.2f}, at most {at_most:.2f} {dict(kinds)}",
        **dict.fromkeys(("p50", "p95", "spoken", "soon", "told", "bound_s"), ""),
    }


def delays(found: list[Found]) -> Iterator[dict[str, Any]]:
    """A change that is not told counts as one that is told never."""
    for name in CHANGES:
        pairs = np.array([pair for each in found for pair in each.delays[name]])
        waits, spoken = pairs.reshape(-1, 2).T
        evidence = [each.evidence[name] for each in found if np.isfinite(each.evidence[name])]
        yield {
            "change": name,
            "speakers": len({each.speaker for each in found}),
            "changes": len(waits),
            "figure": "seconds to the nudge",
            "p50": percentile(waits, 50),
            "p95": percentile(waits, 95),
            "spoken": percentile(spoken, 95),
            "soon": float(np.mean(waits <= 1.5)),
            "told": float(np.mean(np.isfinite(waits))),
            "bound_s": NATS / float(np.median(evidence)) if evidence else "",
        }


def percentile(waits: Sound, share: float) -> float | str:
    found = float(np.percentile(waits, share, method="higher"))
    return round(found, 2) if np.isfinite(found) else "none"


if __name__ == "__main__":
    main()
