"""Does asking early, or drafting runs of blocks, win anything a user sees? In: clips. Out: tables.

The real pair chooses every id; the clock is virtual, so an edge of any speed and a link of any
delay are exact and quick. `python -m bench.slow_edges FOLDER_OF_WAVS`.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import soundfile
import soxr

from bench.common import mean, table
from streamer.assembly.models import Models
from streamer.config import Config
from streamer.core.decoding.gate import Signal
from streamer.core.decoding.pace import MORE, STEP, Pace
from streamer.core.decoding.sequence import Sequence
from streamer.core.decoding.speculate import Done, DraftMore, Emit, Plan, Speculator, Verify, Wait
from streamer.core.decoding.verdict import Refusal, TargetLedger, Verdict
from streamer.core.rules.sampling import Sampling
from streamer.model.drafters import IncrementalDrafter
from streamer.model.listener import Listener
from streamer.model.scheduler import drive

STEP_S = 0.002  # the target's, for one id


class Speaker:
    """One model behind one clip: its next id and signal for any answer, each computed once."""

    def __init__(self, listener: Listener, plan: Plan) -> None:
        self._listener = listener
        self._drafter = IncrementalDrafter(listener, plan.rules, Sampling())
        self._known: dict[tuple[int, ...], tuple[int, Signal]] = {}

    def next(self, answer: tuple[int, ...]) -> tuple[int, Signal]:
        if answer not in self._known:
            sequence = self._listener.sequence
            held = sequence.answer
            same = next((i for i, (a, b) in enumerate(zip(held, answer)) if a != b), min(len(held), len(answer)))
            sequence.replace_tail(sequence.answer_start + same, answer[same:])
            ids, signals = drive(self._listener.engine, self._drafter.draft(1))
            self._known[answer] = ids[0], signals[0]
        return self._known[answer]


@dataclass
class Cost:
    first_s: float
    whole_s: float
    calls: int
    work: float
    ids: tuple[int, ...]


def play(plan: Plan, edge: Speaker, cloud: Speaker, vocabulary, draft_s: float, rtt_s: float, pace: Pace) -> Cost:
    sequence, target = Sequence((0,)), Sequence((0,))
    sequence.start_answer()
    target.start_answer()
    ledger = TargetLedger(target)
    machine = Speculator(plan, vocabulary, sequence, pace)
    now = free_at = work = 0.0
    chance = random.Random(hash((draft_s, rtt_s)))
    first = None
    shown: list[int] = []
    due: list[tuple[float, int, Verdict | Refusal]] = []
    while True:
        while due and due[0][0] <= now:
            reply = heapq.heappop(due)[2]
            machine.verdict(reply, now) if isinstance(reply, Verdict) else machine.refused(reply)
        match machine.next(now):
            case DraftMore(n):
                ids, signals = [], []
                for _ in range(n):
                    token, signal = edge.next(tuple(sequence.answer))
                    sequence.extend([token])
                    ids.append(token)
                    signals.append(signal)
                now += n * draft_s
                machine.drafted(ids, signals, now)
            case Verify(request):
                at = max(now + rtt_s / 2, free_at)
                reply = ledger.begin(request)
                if reply is None:
                    k = len(request.draft)
                    spent = (STEP if k else 1) + MORE * k
                    work += spent
                    at += spent * STEP_S
                    answer = target.answer
                    start = len(answer) - k
                    chosen = [cloud.next(tuple(answer[: start + i]))[0] for i in range(k + 1)]
                    reply = ledger.conclude(request, chosen)
                free_at = at
                heapq.heappush(due, (at + rtt_s / 2 * chance.uniform(0.9, 1.3), request.number, reply))
            case Wait(until):
                now = min([until, *(d[0] for d in due[:1])])
            case Emit(ids, _):
                shown += ids
                first = now if first is None else first
            case Done():
                return Cost(first or now, now, machine.counts.cloud_calls, work, tuple(shown))


WAYS: dict[str, tuple[Callable, ...]] = {
    "as it is": (),
    "no early asks": (lambda: patch.object(Speculator, "_is_doubted", lambda self, is_up: False),),
    "no waits": (lambda: patch.object(Pace, "is_worth_a_wait", lambda self, left_s: False),),
    "neither": (
        lambda: patch.object(Speculator, "_is_doubted", lambda self, is_up: False),
        lambda: patch.object(Pace, "is_worth_a_wait", lambda self, left_s: False),
    ),
    "no waits, no guesses weighed": (
        lambda: patch.object(Speculator, "_is_doubted", lambda self, is_up: False),
        lambda: patch.object(Pace, "is_worth_a_wait", lambda self, left_s: False),
        lambda: patch.object(Pace, "is_worth_a_guess", lambda self, left_s: True),
    ),
}


def speakers(folder: Path, num: int) -> tuple[list[tuple[Speaker, Speaker]], dict[str, Plan], object]:
    plans = {}
    for preset in ("fluent", "quality"):
        plans[preset] = Models(Config.from_mapping({"mode": "gated", "preset": preset, "num_slots": 2 * num})).plan
    models = Models(Config.from_mapping({"mode": "gated", "num_slots": num + 2}))
    found = []
    for file in sorted(folder.rglob("*.wav"))[:num]:
        samples, rate = soundfile.read(file, dtype="float32", always_2d=True)
        samples = soxr.resample(samples.mean(axis=1), rate, 16_000).astype(np.float32)[: 60 * 16_000]
        turn = models.new_turn()
        for at in range(0, len(samples), 32_000):
            turn.push(samples[at : at + 32_000])
        turn.finish()
        pair = turn.prefilled()
        if pair is None:
            turn.close()
            continue
        found.append(tuple(Speaker(listener, models.plan) for listener in pair))
    return found, plans, models.first.vocabulary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--num", type=int, default=40)
    parser.add_argument("--edge-ms", type=float, nargs="+", default=[0.4, 8, 30, 100])
    parser.add_argument("--rtt", type=float, nargs="+", default=[0, 20, 50, 100, 200])
    parser.add_argument("--ways", nargs="+", default=list(WAYS))
    options = parser.parse_args()
    pairs, plans, vocabulary = speakers(options.folder, options.num)
    print(len(pairs), "clips;", {n: (p.k, p.gate, p.ahead, p.credits) for n, p in plans.items()})
    rows = []
    for preset, plan in plans.items():
        if plan is None:
            plan = replace(plans["fluent"], mode="exact", adapts=True)
        plan = replace(plan, ahead=48, credits=4, verify_budget_s=1e9)
        for draft_s in (ms / 1000 for ms in options.edge_ms):
            for rtt_s in (ms / 1000 for ms in options.rtt):
                base = None
                for way, patches in ((way, WAYS[way]) for way in options.ways):
                    open_patches = [make() for make in patches]
                    for p in open_patches:
                        p.start()
                    pace = Pace(draft_s, rtt_s + 0.003)
                    for pair in pairs[:8]:
                        play(plan, *pair, vocabulary, draft_s, rtt_s, pace)
                    costs = [play(plan, *pair, vocabulary, draft_s, rtt_s, pace) for pair in pairs]
                    for p in open_patches:
                        p.stop()
                    if base is None:
                        base = costs
                    same = [c.ids for c in costs] == [c.ids for c in base]
                    own = [1000 * mean(c.first_s for c in costs), 1000 * mean(c.whole_s for c in costs), mean(c.calls for c in costs), mean(c.work for c in costs)]
                    ref = [1000 * mean(c.first_s for c in base), 1000 * mean(c.whole_s for c in base), mean(c.calls for c in base), mean(c.work for c in base)]
                    rows.append([preset, 1000 * draft_s, 1000 * rtt_s, way, *own, *(round(a / b, 3) if b else 1.0 for a, b in zip(ref, own)), same])
    print(table(["plan", "edge ms", "rtt ms", "way", "first ms", "whole ms", "calls", "work", "first: with/without", "whole: with/without", "calls", "work", "same ids"], rows))


if __name__ == "__main__":
    main()
