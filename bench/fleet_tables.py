"""Fleets as multiples of one GPU on paper. In: nothing. Out: a row for each arm, size and load."""

from __future__ import annotations

import math
from typing import Any

from bench.fleet_paper import (
    ARMS,
    BOUND_S,
    CLOUD,
    EDGE,
    GPUS_PER_MACHINE,
    PAUSE_S,
    PCM_BITS,
    SKIPPED,
    TOKENS,
    TURN_S,
    K,
    PaperModel,
    PaperVerifier,
)


def p95(values: list[float]) -> float:
    found = sorted(values)
    return found[int(0.95 * (len(found) - 1))] if found else 0.0


def simulated(
    arm: str, model: PaperModel, num: int, asks: float, until: float = 40.0
) -> PaperVerifier:
    verifier = PaperVerifier(arm, model, num, asks=asks)
    verifier.run(until)
    return verifier


def delay_s(verifier: PaperVerifier) -> float:
    """p95 of first verdicts after the first 15 s, without a lazy turn's upload."""
    return p95([took for asked, took, _ in verifier.delays if asked > 15.0])


def with_upload_s(verifier: PaperVerifier) -> float:
    """The same with it."""
    return p95([took + upload for asked, took, upload in verifier.delays if asked > 15.0])


def capacity(arm: str, model: PaperModel, asks: float = 1 - SKIPPED) -> tuple[int, PaperVerifier]:
    """The most people whose first verdicts come within BOUND_S, beyond what one alone waits; to
    4 %."""
    alone_s = delay_s(simulated(arm, model, 8, asks, 200.0))
    low, high = 8, 40_000
    best = simulated(arm, model, low, asks)
    while high / low > 1.04:
        num = round(math.sqrt(low * high))
        verifier = simulated(arm, model, num, asks)
        late = p95([now for now, *_ in verifier.delays]) < 30.0  # it has stopped answering
        if late or delay_s(verifier) - alone_s > BOUND_S:
            high = num
        else:
            low, best = num, verifier
    return low, best


def recovery_s(arm: str, num: int, machines: int, load: float) -> float:
    """How long first verdicts are late after one of `machines` was lost, at `load` of the
    capacity."""
    people = round(num * load)
    alone_s = delay_s(simulated(arm, CLOUD, 8, 1 - SKIPPED, 200.0))
    verifier = PaperVerifier(arm, CLOUD, people, seed=1)
    verifier.run(60.0, 30.0, round(people / (machines - 1)))
    late = [at for at, took, _ in verifier.delays if at > 30.0 and took - alone_s > 2 * BOUND_S]
    return max(late) - 30.0 if late else 0.0


def capacities() -> list[dict[str, Any]]:
    rows = []
    for arm in ARMS:
        num, verifier = capacity(arm, CLOUD)
        rows.append(
            {
                "arm": arm,
                "people_per_gpu": num,
                "hearing_share": verifier.heard_flop / verifier.flop,
                "busy": verifier.busy_s / 40.0,
                "first_verdict_p95_ms": 1_000 * delay_s(verifier),
                "with_upload_p95_ms": 1_000 * with_upload_s(verifier),
                "gpu_s_per_speaker_hour": 3_600 / num,
            }
        )
    return rows


def fleets(capacities: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """edge "device": it costs nobody but its owner; "server": a 3B on GPUs of ours, which hears
    all and drafts all."""
    drafting, _ = capacity("cloud only", EDGE)
    rows = []
    for people in (1_000, 100_000, 1_000_000):
        for each in capacities:
            for edge in ("device", "server") if each["arm"] != "cloud only" else ("none",):
                verifiers = math.ceil(people / each["people_per_gpu"])
                drafters = math.ceil(people / drafting) if edge == "server" else 0
                machines = math.ceil((verifiers + drafters) / GPUS_PER_MACHINE)
                spare = max(1, math.ceil(0.1 * machines))
                dollars_h = (machines + spare) * GPUS_PER_MACHINE * CLOUD.dollars_h
                rows.append(
                    {
                        "people": people,
                        "arm": each["arm"],
                        "edge": edge,
                        "verifiers": verifiers,
                        "drafters": drafters,
                        "machines": machines + spare,
                        "dollars_per_1000_speaker_hours": 1_000 * dollars_h / people,
                        "audio_gbit_s": _audio_gbit_s(people, each["arm"]),
                    }
                )
    return rows


def _audio_gbit_s(people: int, arm: str) -> float:
    """To verifiers, from edges on devices."""
    share = TURN_S / (TURN_S + PAUSE_S + 1.0)
    asked = 1 - SKIPPED ** round(TOKENS / K) if arm == "gated lazy" else 1.0
    return people * share * asked * PCM_BITS / 1e9


def slack(capacities: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The highest load at which verdicts are late for at most 3 s when a machine is lost."""
    rows = []
    for each in capacities[1:]:
        for machines in (2, 4, 16):
            loads = [load / 20 for load in range(6, 20)]
            held = [
                load
                for load in loads
                if recovery_s(each["arm"], each["people_per_gpu"], machines, load) <= 3.0
            ]
            rows.append({"arm": each["arm"], "machines": machines, "load": max(held, default=0.0)})
    return rows


def lazy_against_eager() -> list[dict[str, Any]]:
    """By the share of blocks that are asked about: the work of the one over that of the other, and
    what the first verdict waits for, at 1,000 people on one GPU."""
    rows = []
    for asks in (0.02, 0.05, 0.1, 0.15, 0.27, 0.5):
        eager, lazy = (simulated(arm, CLOUD, 1_000, asks) for arm in ("gated eager", "gated lazy"))
        rows.append(
            {
                "asked": asks,
                "turns_asked": 1 - (1 - asks) ** round(TOKENS / K),
                "flop_ratio": lazy.flop / eager.flop,
                "gpu_ratio": capacity("gated eager", CLOUD, asks)[0]
                / capacity("gated lazy", CLOUD, asks)[0],
                "eager_p95_ms": 1_000 * with_upload_s(eager),
                "lazy_p95_ms": 1_000 * with_upload_s(lazy),
            }
        )
    return rows


def breaks(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each part must carry beside the models. Sessions last ten minutes; a place is a
    server's, 64 for each (bench/load.py); polls are every 0.25 s by each of two directors."""
    found = []
    for people in sorted({row["people"] for row in rows}):
        verifiers = max(
            r["verifiers"] for r in rows if r["people"] == people and r["arm"] == "exact"
        )
        found.append(
            {
                "people": people,
                "redirects_s": people / 600,
                "replicas": verifiers,
                "polls_s": verifiers * 4 * 2,
                "sockets_per_verifier": people / verifiers,
                "audio_gbit_s": _audio_gbit_s(people, "exact"),
            }
        )
    return found
