"""How right are the measures, and what do they cost? Beside Praat and known texts, on people.

    python -m bench.measures --people DIR [--num 200] [--keep]

DIR: recordings of held-out people with manifest.jsonl, as `python -m pipelines.embedded.recordings
--held-out DIR` writes them. The truth of F0, level, pauses and timbre is what the labels measure
(pipelines/embedded/labels.py: Praat's autocorrelation, silero); that of the rate is the text. Praat
beside itself, with cross-correlation, says how far two good trackers agree. The cost is that of
measures and of the coach, in turns; so is the time of the first text, with none, one and both, and
again with a verifier's process beside this one. "None again" says how far it is chance.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import parselmouth
import soundfile

from bench.common import options_of, progress, table, write
from bench.processes import serving
from pipelines.embedded.labels import Measures, measure
from pipelines.embedded.mel import raw_log_mel
from pipelines.embedded.speech import speech_frames
from pipelines.embedded.synthesis import f0_track
from streamer import Describer, Description
from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.coach.coach import Coach
from streamer.core.measures.pitch import pitch_stats
from streamer.model.audio.coach_ear import CoachEar
from streamer.model.audio.measurer import TurnMeasurer

NUM_TURNS = 20
NUM_COSTS = 5
PIECE = SAMPLE_RATE_HZ // 10  # as a microphone sends it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=Path, required=True)
    parser.add_argument("--num", type=int, default=200)
    options = options_of(parser)
    rows = [one for each in progress(chosen(options), "clips") if (one := of_clip(each))]
    found = [*accuracy(rows), *costs(options), *anyio.run(first_text, options, "embedded")]
    with serving("streamer", "verifier", "--port", "0") as (url, _):
        found += anyio.run(first_text, options, url)
    print(table(["measure", "against", "clips", "figure", "is"], [list(r.values()) for r in found]))
    print(write("measures", found))


def chosen(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Single clips, drawn with a fixed seed."""
    lines = (options.people / "manifest.jsonl").read_text("utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["kind"] == "clip"]
    drawn = random.Random(0).sample(rows, min(options.num, len(rows)))
    return [{**row, "file": options.people / row["wav"]} for row in drawn]


def of_clip(row: dict[str, Any]) -> dict[str, float | None] | None:
    """Ours and the truth, name by name; None where too little is voiced for the labels."""
    samples, _ = soundfile.read(row["file"], dtype="float32")
    found = labelled(samples, row["syllables"])
    if found is None:
        return None
    (truth, f0), ours = found, measured(samples)
    crossed = cross_correlation(samples, f0)
    return {
        "pitch": ours.pitch_median_hz,
        "true_pitch": truth.pitch,
        "praat_pitch": crossed and crossed.median_hz,
        "sd": ours.pitch_sd_semitones,
        "true_sd": truth.variation,
        "praat_sd": crossed and crossed.sd_semitones,
        "level": ours.level_dbfs,
        "true_level": truth.loudness,
        "pauses": ours.pause_share,
        "true_pauses": truth.pauses,
        "timbre": ours.timbre_db,
        "true_timbre": truth.timbre,
        "rate": ours.rate_syllables_per_s,
        "true_rate": truth.rate if row["syllables"] else None,
    }


def labelled(samples: np.ndarray, syllables: int | None) -> tuple[Measures, np.ndarray] | None:
    """What the labels measure, and Praat's F0 on the mel's frames; None where too little is
    voiced."""
    raw = raw_log_mel(samples)
    f0 = f0_track(samples, len(raw))
    try:
        return measure(raw, f0, syllables, speech_frames(samples)), f0
    except ValueError:
        return None


def measured(samples: np.ndarray) -> Any:
    """Streamed, as it arrives."""
    measurer = TurnMeasurer()
    for at in range(0, len(samples), PIECE):
        measurer.push(samples[at : at + PIECE])
        measurer.work(True)
    return measurer.finish()


def cross_correlation(samples: np.ndarray, f0: np.ndarray) -> Any:
    """Praat's other tracker, within the range that the first one found."""
    voiced = f0[f0 > 0]
    low, high = 0.75 * np.percentile(voiced, 15), 1.6 * np.percentile(voiced, 85)
    track = parselmouth.Sound(samples, SAMPLE_RATE_HZ).to_pitch_cc(
        0.01, max(60, low), pitch_ceiling=min(500, high)
    )
    other = track.selected_array["frequency"]
    return pitch_stats(other[other > 0].astype(np.float32)) if (other > 0).any() else None


def accuracy(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per claim of docs/measures.md."""

    def share(a: str, b: str, within: Callable[[float, float], bool], what: str, of: str) -> Any:
        known = [(r[a], r[b]) for r in rows if r[a] is not None and r[b] is not None]
        right = float(np.mean([within(x, y) for x, y in known]))
        return {"measure": a, "against": of, "clips": len(known), "figure": what, "is": right}

    def near(limit: float) -> Callable[[float, float], bool]:
        return lambda x, y: abs(x - y) <= limit

    def ratio(limit: float) -> Callable[[float, float], bool]:
        return lambda x, y: abs(x / y - 1) <= limit

    rates = [(r["rate"], r["true_rate"]) for r in rows if r["rate"] and r["true_rate"]]
    errors = np.array([x - y for x, y in rates])
    return [
        share("pitch", "true_pitch", ratio(0.02), "share within 2 %", "Praat"),
        share("pitch", "true_pitch", ratio(0.05), "share within 5 %", "Praat"),
        share("praat_pitch", "true_pitch", ratio(0.02), "share within 2 %", "Praat"),
        share("sd", "true_sd", near(0.3), "share within 0.3 semitones", "Praat"),
        share("praat_sd", "true_sd", near(0.3), "share within 0.3 semitones", "Praat"),
        share("level", "true_level", near(0.5), "share within 0.5 dB", "the labels"),
        share("pauses", "true_pauses", near(0.02), "share within 0.02", "the labels"),
        share("timbre", "true_timbre", near(0.5), "share within 0.5 dB", "the labels"),
        {
            "measure": "rate",
            "against": "the text",
            "clips": len(rates),
            "figure": "mean error, syllables/s",
            "is": float(np.abs(errors).mean()),
        },
        {
            "measure": "rate",
            "against": "the text",
            "clips": len(rates),
            "figure": "bias, syllables/s",
            "is": float(errors.mean()),
        },
    ]


def coached(samples: np.ndarray) -> None:
    """Heard by a coach, as it arrives."""
    ear = CoachEar(Coach())
    for at in range(0, len(samples), PIECE):
        ear.push(samples[at : at + PIECE])
        ear.work()


def costs(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Of one thread's time, over a minute of speech that comes in pieces, news 5 times a second."""
    pieces = [soundfile.read(row["file"], dtype="float32")[0] for row in chosen(options)[:20]]
    samples = np.concatenate(pieces)[: 60 * SAMPLE_RATE_HZ]
    heard: dict[str, Callable[[np.ndarray], object]] = {"measures": measured, "coach": coached}
    spent: dict[str, list[float]] = {name: [] for name in heard}
    for i in range(NUM_COSTS + 1):  # the first loads the networks
        for name, hear in heard.items():
            begun = time.process_time()
            hear(samples)
            if i:
                spent[name].append((time.process_time() - begun) * SAMPLE_RATE_HZ / len(samples))
    for name, shares in spent.items():
        yield {
            "measure": name,
            "against": "",
            "clips": len(shares),
            "figure": "share of a core per live stream, median",
            "is": float(np.median(shares)),
        }


async def first_text(options: argparse.Namespace, cloud: str) -> list[dict[str, Any]]:
    """Of live turns, one of each kind in turns: how much later the first text is, in pairs. cloud:
    as Config has it."""
    samples, _ = soundfile.read(chosen(options)[0]["file"], dtype="int16")
    arms: dict[str, dict[str, bool]] = {
        "none": {},
        "none again": {},
        "measures": {"measures": True},
        "coach": {"coach": True},
        "both": {"measures": True, "coach": True},
    }
    waits: dict[str, list[float]] = {name: [] for name in arms}
    async with Describer.open(cloud=cloud) as describer:
        await one_turn(describer, samples)
        for i in range(NUM_TURNS):
            order = list(arms.items())
            for name, asked in order[i % len(order) :] + order[: i % len(order)]:
                waits[name].append(await one_turn(describer, samples, **asked))
    later = {name: np.subtract(found, waits["none"]) for name, found in waits.items()}
    return [
        {
            "measure": name,
            "against": "none" if cloud == "embedded" else "none, verifier elsewhere",
            "clips": len(later[name]),
            "figure": f"first text later, ms, {what}",
            "is": float(np.percentile(later[name], share)),
        }
        for name in list(arms)[1:]
        for what, share in (("lower quartile", 25), ("median", 50), ("upper quartile", 75))
    ]


async def one_turn(describer: Describer, samples: np.ndarray, **asked: bool) -> float:
    """Milliseconds to its first text."""
    async with describer.session(**asked) as session:
        for at in range(0, len(samples), PIECE):
            await session.feed(samples[at : at + PIECE].tobytes())
            # four times as fast as a microphone
            await anyio.sleep(PIECE / SAMPLE_RATE_HZ / 4)
        await session.commit()
        ended = [event async for event in session if isinstance(event, Description)][-1]
    assert ended.ttft_ms is not None
    assert ended.warning is None  # a verifier that is away is no figure
    return ended.ttft_ms


if __name__ == "__main__":
    main()
