"""Work for a model as generators: they yield rows and windows and get logits and embeddings.

All of prefill, redo, draft and verify are written once in this form. One stream drives it alone
(`drive`), many streams share an engine (`StepScheduler`): each round is one `Engine.step` for what
every one of them wants next.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamer.model.engines.engine import Engine, Row

T = TypeVar("T")
# rows up to this, with logits wanted, are someone's next ids: they are in every step
SHORT_IDS = 24
PREFILL_IDS = 64  # most ids of all longer rows together in one step; a window is 50


@dataclass(frozen=True, slots=True)
class Encode:
    """Hear one window: log-mel features [mels, T]; its embeddings [n, hidden] come back."""

    features: NDArray[np.float32]


# Sent back: logits, NumPy's; embeddings of the engine's own kind.
Steps = Generator[Row | Encode, Any, T]


def drive(engine: Engine, steps: Steps[T]) -> T:
    """Run one stream's steps to their end."""
    try:
        wanted = next(steps)
        while True:
            if isinstance(wanted, Encode):
                wanted = steps.send(engine.tower.encode(wanted.features[None])[0])
            else:
                wanted = steps.send(engine.step([wanted])[0])
    except StopIteration as over:
        return over.value


# `steps`, and once they are done their `value`, or the `error` that ended them; `is_urgent`: a turn
# has ended, and someone waits for the answer
Job = Any


@dataclass(slots=True)
class _Hand:
    wanted: Row | Encode | None = None  # by a job's steps next; None before they are started
    num_fed: int = 0  # ids of that row that are fed already


class StepScheduler:
    """Steps of many streams on one engine. Not thread-safe: one thread adds and runs rounds.

    Every stream that waits for its next ids is in every step; beside them a step feeds at most
    PREFILL_IDS ids of longer rows: first those that are urgent, then the others in the order in
    which they came. A round encodes at most as many windows as the tower likes at once. So no
    stream waits longer for its next id. How a row is cut changes no bit of it. A stream whose steps
    fail ends alone; the others of its round are fed all the same.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # in the order in which they began to want what they want
        self._hands: dict[Job, _Hand] = {}

    def __len__(self) -> int:
        return len(self._hands)

    def add(self, job: Job) -> None:
        """Take part from the next round on."""
        self._hands[job] = _Hand()

    def drop(self, job: Job) -> None:
        """Take no further part: the steps are closed where they stand. Others are ignored."""
        if self._hands.pop(job, None) is not None:
            job.steps.close()

    def run(self) -> list[Job]:
        """One round: start what waits, encode, feed; the jobs that are done."""
        waiting = [job for job, hand in self._hands.items() if hand.wanted is None]
        done = [job for job in waiting if self._advance(job, None)]
        done += [job for job, found in self._encode() if self._advance(job, found)]
        for job, row, logits in self._feed():
            hand = self._hands[job]
            hand.num_fed += len(row.ids)
            assert isinstance(hand.wanted, Row)
            is_fed = isinstance(logits, Exception) or hand.num_fed == len(hand.wanted.ids)
            done += [job] if is_fed and self._advance(job, logits) else []
        return done

    def _encode(self) -> list[tuple[Job, Any]]:
        """The embeddings of this round's windows, those of one length at once."""
        hands = self._hands.items()
        wanted = [(job, one) for job, hand in hands if isinstance(one := hand.wanted, Encode)]
        if not wanted:
            return []
        wanted.sort(key=lambda one: not one[0].is_urgent)
        length = wanted[0][1].features.shape[-1]
        chosen = [one for one in wanted if one[1].features.shape[-1] == length]
        chosen = chosen[: self._engine.tower.windows_at_once]
        try:
            features = np.stack([window.features for _, window in chosen])
            found = list(self._engine.tower.encode(features))
        except Exception as error:
            return [(job, error) for job, _ in chosen]
        return [(job, embeddings) for (job, _), embeddings in zip(chosen, found, strict=True)]

    def _feed(self) -> list[tuple[Job, Row, Any]]:
        """The rows of this round, fed in one step, and their logits."""
        rows = self._plan()
        if not rows:
            return []
        try:
            logits: list[Any] = [*self._engine.step([row for _, row in rows])]
        except Exception:  # one row cannot be fed: find out whose
            logits = []
            for _, row in rows:
                try:
                    logits += self._engine.step([row])
                except Exception as error:
                    logits.append(error)
        return [(job, row, got) for (job, row), got in zip(rows, logits, strict=True)]

    def _plan(self) -> list[tuple[Job, Row]]:
        short: list[tuple[Job, Row]] = []
        long: list[tuple[Job, Row]] = []
        for job, hand in self._hands.items():
            if isinstance(row := hand.wanted, Row):
                is_short = row.num_logits > 0 and len(row.ids) <= SHORT_IDS
                (short if is_short else long).append((job, row))
        long.sort(key=lambda one: not one[0].is_urgent)
        planned = [(job, _piece(row, self._hands[job].num_fed, SHORT_IDS)) for job, row in short]
        budget = PREFILL_IDS
        for job, row in long:
            if budget <= 0:
                break
            planned.append((job, _piece(row, self._hands[job].num_fed, budget)))
            budget -= len(planned[-1][1].ids)
        return planned

    def _advance(self, job: Job, got: Any) -> bool:
        """Go on to what the steps want next, or to their end: then True."""
        self._hands.pop(job, None)
        try:
            wanted = job.steps.throw(got) if isinstance(got, Exception) else job.steps.send(got)
        except StopIteration as over:
            job.value = over.value
        except Exception as error:
            job.error = error
        else:
            self._hands[job] = _Hand(wanted)
            return False
        return True


def _piece(row: Row, first: int, budget: int) -> Row:
    """At most `budget` ids of `row` from its `first` on, but at its end all that logits are wanted
    of."""
    left = len(row.ids) - first
    n = left if left <= max(budget, row.num_logits) else min(budget, left - row.num_logits)
    has_embeds = row.embeds is not None and first < len(row.embeds)
    embeds = row.embeds[first : first + n] if has_embeds else None
    num_logits = row.num_logits if n == left else 0
    return Row(row.slot, row.start + first, row.ids[first : first + n], embeds, num_logits)
