"""Where the time of one drafted id goes beside the model's step. In: held-out clips. Out: a table,
JSON lines.

`python -m bench.per_id [--num 8] [--seconds 20] [--rounds 5]`, six minutes. Whole answers of the
edge as a stream gets them, one thread: in mode gated, the gate asked at every block and never
firing, in runs of blocks (what a stream alone gets) and block by block inside the kernels, with the
rules and the choice compiled but asked for each id, and the readable way; in mode edge in runs and
id by id. All in turns; medians over turns of microseconds of the thread's own time per id. The
first id is alone in each, as it is in a turn, and each arm keeps its pace from turn to turn. The
step is the text model's alone, `text.step` from its call to its return; all else is ours to keep
small:

    choose   rules, choice, gate's numbers, end of the answer, and the stream's own bookkeeping of
    ids; in runs and blocks the compiled part of it is in `step` (in runs the gate's, too), and what
    is left is Python's engine   from rows to the model's arguments and back machine  the state
    machine; the gate in it, but in runs only where it fires out      ids to text

Then 16 streams in one step (no machine, no text), as the scheduler runs them. Last, single calls:
the median of each alone, again and again on one answer, which finds its data nearer than a decoding
loop does.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from bench.arms import models_of
from bench.clips import Clip, held_out
from bench.common import median, progress, table, write
from bench.keep import options_of
from streamer.core.decoding.gate import Gate, Signal, fires
from streamer.core.decoding.pace import Pace
from streamer.core.decoding.plan import Done, DraftMore, Emit
from streamer.core.decoding.speculate import Speculator
from streamer.core.description import TextDelta
from streamer.core.rules.constrain import constrain
from streamer.core.rules.stop import stop
from streamer.core.text.emitter import Emitter
from streamer.model.choose import choose
from streamer.model.drafters import IncrementalDrafter
from streamer.model.listener import Listener
from streamer.model.offline import hear_turn
from streamer.model.sampler import Chooser
from streamer.model.scheduler import StepScheduler, drive

# asked, and passed by every block of speech
OPEN = Gate(entropy=None, margin=-1.0, density=1.0, loop=True)
PARTS = ("step", "choose", "engine", "machine", "out")
ARMS = (
    "gated, runs",
    "gated, blocks",
    "gated, compiled",
    "gated, readable",
    "edge, runs",
    "edge, blocks",
)
IN_COMPANY = {
    "gated, blocks": "blocks",
    "gated, compiled": "compiled",
    "gated, readable": "readable",
}
ENDLESS = 1e9  # seconds per id of a pace that allows no run
ROWS = 16
Spent = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num", type=int, default=8, help="clips")
    parser.add_argument("--seconds", type=int, default=20, help="their length")
    parser.add_argument(
        "--rounds", type=int, default=5, help="of all clips, after one that is dropped"
    )
    options = options_of(parser)
    torch.set_num_threads(1)
    models = models_of(mode="edge", num_slots=ROWS)
    found: dict[tuple[str, int], list[Spent]] = defaultdict(list)
    clips = held_out(options.num, options.seconds)
    paces = {arm: Pace() for arm in ARMS}
    for i in progress(range(options.rounds + 1), "rounds"):
        for clip in clips:
            for arm in ARMS if i % 2 else ARMS[::-1]:
                spent = {1: answer(models, clip, arm, paces[arm])}
                if arm in IN_COMPANY:
                    spent[ROWS] = company(models, clip, IN_COMPANY[arm])
                for rows, one in spent.items():
                    found[arm, rows] += [one] if i and one else []
    rows = [
        row_of(arm, num, spent)
        for (arm, num), spent in sorted(found.items(), key=lambda one: one[0][1])
    ]
    singles = alone(models, clips[0])
    heads = ("arm", "rows", *PARTS, "all but the step", "of the step", "whole")
    print(table(heads, [list(row.values()) for row in rows]))
    print(table(("one call", "us"), singles.items()))
    print("written:", write("per_id", [*rows, singles]))


def row_of(arm: str, num: int, spent: list[Spent]) -> dict[str, Any]:
    parts = {part: median(one.get(part) for one in spent) for part in PARTS}
    ours = median(sum(one.values()) - one["step"] for one in spent)
    share = median((sum(one.values()) - one["step"]) / one["step"] for one in spent)
    whole = median(sum(one.values()) for one in spent)
    return {"arm": arm, "rows": num, **parts, "ours": ours, "share": share, "whole": whole}


class Clock:
    """This thread's own seconds, by the name of whoever had them: others on the machine do not
    count."""

    def __init__(self) -> None:
        self.spent: Spent = defaultdict(float)
        self._last = time.thread_time()

    def over(self, part: str) -> None:
        """What passed since the last call was `part`'s."""
        now = time.thread_time()
        self.spent[part] += now - self._last
        self._last = now

    def per_id(self, num_ids: int) -> Spent:
        return {part: 1e6 * seconds / num_ids for part, seconds in self.spent.items()}


@contextmanager
def watching(text: Any, clock: Clock) -> Iterator[None]:
    """The model's own step is told from what the engine does around it."""
    step = text.step

    def timed(*arguments: Any) -> Any:
        clock.over("engine")
        found = step(*arguments)
        clock.over("step")
        return found

    text.step = timed
    try:
        yield
    finally:
        del text.step


def heard(models: Any, clip: Clip) -> Listener:
    """A listener of the edge whose turn is over, and its first id's step is all that is left."""
    return hear_turn(models.pair[0], clip.samples)


def drafter_of(models: Any, listener: Listener, way: str) -> IncrementalDrafter:
    drafter = IncrementalDrafter(listener, models.plan.rules, models.config.sampling())
    if way not in ("runs", "blocks"):
        drafter.chooser._is_compiled &= way == "compiled"
        drafter.chooser.writer = lambda wanted, width, run=None: None  # type: ignore[method-assign]
    return drafter


def answer(models: Any, clip: Clip, arm: str, pace: Pace) -> Spent:
    """One stream's whole answer: microseconds per id."""
    listener = heard(models, clip)
    (mode, way) = arm.split(", ")
    try:
        plan = replace(models.plan, mode=mode, gate=OPEN)
        its_pace = pace if way == "runs" else Pace(ENDLESS)
        spec = Speculator(plan, listener.thinker.vocabulary, listener.sequence, its_pace)
        drafter = drafter_of(models, listener, way)
        emitter = Emitter(listener.thinker.vocabulary)
        engine = listener.engine
        drive(engine, drafter.draft(1))  # it feeds the suffix too
        listener.sequence.replace_tail(len(listener.sequence) - 1)
        clock = Clock()
        is_first = True
        with watching(engine.text, clock):
            while True:
                action = spec.next(time.perf_counter())
                clock.over("machine")
                match action:
                    case DraftMore(n, run):
                        found = driven(
                            engine, drafter.draft(1) if is_first else drafter.draft(n, run), clock
                        )
                        is_first = False
                        spec.drafted(*found, time.perf_counter())
                    case Emit(_, verified) as emit:
                        for ids in plan.deltas_of(emit):
                            TextDelta(emitter.push(ids), ids, verified, 0.0)
                        clock.over("out")
                    case Done(reason):
                        return clock.per_id(spec.counts.n_drafted) if reason == "sentence" else {}
    finally:
        listener.close()


def driven(engine: Any, steps: Any, clock: Clock) -> Any:
    """model/scheduler.py's drive, told apart."""
    try:
        wanted = next(steps)
        clock.over("choose")
        while True:
            [logits] = engine.step([wanted])
            clock.over("engine")
            wanted = steps.send(logits)
            clock.over("choose")
    except StopIteration as over:
        clock.over("choose")
        return over.value


def company(models: Any, clip: Clip, way: str) -> Spent:
    """The same turn ROWS times at once: microseconds per id; what the scheduler adds is the
    engine's here."""
    listeners = [heard(models, clip) for _ in range(ROWS)]
    try:
        drafters = [drafter_of(models, listener, way) for listener in listeners]
        rounds = StepScheduler(listeners[0].engine)
        for key, drafter in enumerate(drafters):
            rounds.add(key, drafter.draft(1))
        while len(rounds):
            rounds.run()
        for key, drafter in enumerate(drafters):
            rounds.add(key, drafter.draft(24))
        clock = Clock()
        num_ids = 0
        with watching(listeners[0].engine.text, clock):
            while len(rounds):
                num_ids += sum(len(done.value[0]) for done in rounds.run())
                clock.over("engine")
        return clock.per_id(num_ids)
    finally:
        for listener in listeners:
            listener.close()


def alone(models: Any, clip: Clip) -> Spent:
    """Single calls in the middle of an answer, in microseconds."""
    listener = heard(models, clip)
    try:
        drafter = drafter_of(models, listener, "compiled")
        ids, signals = drive(listener.engine, drafter.draft(models.plan.rules.max_new_tokens))
    finally:
        listener.close()
    thinker = listener.thinker
    rules = models.plan.rules
    sampling = models.config.sampling()
    vocabulary = thinker.vocabulary
    said = ids[:16]
    logits = torch.randn(1, thinker.vocabulary.num_ids)
    logits[0, ids[16]] = 20.0
    chooser = Chooser(vocabulary, thinker.never, rules, sampling)
    constraint = constrain(vocabulary, rules, said)

    def choose_next() -> None:
        chooser._n = len(said)
        chooser.next(logits)

    chooser.begin(said)
    return {
        "rules, choice, signal and end: compiled": timed(choose_next),
        "rules: readable": timed(lambda: constrain(vocabulary, rules, said)),
        "choice and signal: readable": timed(
            lambda: choose(logits, [constraint], thinker.never, sampling, rules)
        ),
        "end: readable": timed(lambda: stop(vocabulary, rules, said, ids[16])),
        "gate, a block of 4": timed(
            lambda: fires(OPEN, vocabulary, said, ids[12:16], signals[12:16])
        ),
        "signal made": timed(lambda: Signal(0.1, 0.9, -0.1)),
    }


def timed(call: Callable[[], object]) -> float:
    def once() -> float:
        started = time.thread_time()
        for _ in range(50):
            call()
        return 1e6 * (time.thread_time() - started) / 50

    return median(once() for _ in range(60))


if __name__ == "__main__":
    main()
