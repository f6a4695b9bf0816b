"""What a stream wants of a model: a generator of rows and windows, sent logits and embeddings.

All of prefill, redo, draft and verify are written once in this form. One stream drives it alone
(`drive`), many streams share an engine (`Rounds`): each round is one `Engine.step` for what every
one of them wants next.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamer.model.engines.engine import Engine, Row

T = TypeVar("T")
# rows up to this, with logits wanted, are someone's next ids: they are in every step
SHORT_IDS = 16
PREFILL_IDS = 64  # of all longer rows together, at most so many ids in one step: a window is 50
# Rounds in a row that may pass over next ids, what a turn that is over has left, and what is heard.
PATIENCE = (1, 1, 4)


@dataclass(frozen=True, slots=True)
class Encode:
    """Hear one window: log-mel features [mels, T]; its embeddings [n, hidden] come back.

    is_urgent: a turn has ended with it, someone waits for the answer.
    """

    features: NDArray[np.float32]
    is_urgent: bool = False


# Sent back: logits, NumPy's; embeddings of the engine's own kind.
Steps = Generator[Row | Encode, Any, T]


def drive(engine: Engine, steps: Steps[T]) -> T:
    """Run one stream's steps to their end, nobody else's."""
    try:
        wanted = next(steps)
        while True:
            if isinstance(wanted, Encode):
                wanted = steps.send(engine.encode(wanted.features[None])[0])
            else:
                wanted = steps.send(engine.step([wanted])[0])
    except StopIteration as over:
        value: T = over.value
        return value


@dataclass(frozen=True, slots=True)
class Finished:
    """What the steps under `key` came to: a value, or the error that ended them."""

    key: Hashable
    value: Any = None
    error: Exception | None = None


@dataclass(slots=True)
class _Hand:
    """One stream's steps, what they want next, and how many ids of that row are fed already.

    is_awaited: its turn is over, someone waits for the answer.
    """

    key: Hashable
    steps: Steps[Any]
    wanted: Row | Encode
    is_awaited: bool
    num_fed: int = 0

    @property
    def kind(self) -> int:
        """Place in PATIENCE."""
        wanted = self.wanted
        if isinstance(wanted, Row) and wanted.num_logits > 0 and len(wanted.ids) <= SHORT_IDS:
            return 0
        return 1 if self.is_awaited else 2

    def piece(self, row: Row, budget: int) -> Row:
        """At most `budget` ids of `row`, but at its end all that logits are wanted of."""
        first = self.num_fed
        left = len(row.ids) - self.num_fed
        n = left if left <= max(budget, row.num_logits) else min(budget, left - row.num_logits)
        embeds = (
            None
            if row.embeds is None or first >= len(row.embeds)
            else row.embeds[first : first + n]
        )
        num_logits = row.num_logits if n == left else 0
        writer = row.writer if n == left else None
        return Row(
            row.slot, row.start + first, row.ids[first : first + n], embeds, num_logits, writer
        )


class StepScheduler:
    """Steps of many streams on one engine. Not thread-safe: one thread adds and runs rounds.

    A round is one call of the engine, for one kind of want: next ids of all who wait for them, or
    what a turn that is over has left, or what is heard. The first comes first, but none is passed
    over more often than PATIENCE says. A call feeds at most PREFILL_IDS ids of long rows, and
    encodes at most as many windows as the tower likes at once; so nobody's next ids wait for more
    than one such call. How a row is cut changes no bit of it. A stream whose steps fail ends
    alone; the others of its round are fed all the same.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: list[tuple[Hashable, Steps[Any]]] = []  # added, not started
        # started, in the order in which they began to want what they want
        self._hands: dict[Hashable, _Hand] = {}
        self._passed = [0] * len(PATIENCE)  # rounds in a row that went to another kind

    def __len__(self) -> int:
        return len(self._waiting) + len(self._hands)

    def add(self, key: Hashable, steps: Steps[Any]) -> None:
        """Take part from the next round on. `key` must not be in hand."""
        self._waiting.append((key, steps))

    def drop(self, key: Hashable) -> None:
        """Take no further part: the steps are closed where they stand. Unknown keys are ignored."""
        for waiting in [w for w in self._waiting if w[0] == key]:
            self._waiting.remove(waiting)
            waiting[1].close()
        if key in self._hands:
            self._hands.pop(key).steps.close()

    def run(self) -> list[Finished]:
        """One round: start what waits, one call of the engine, say what is finished."""
        finished: list[Finished] = []
        waiting = self._waiting
        self._waiting = []
        for key, steps in waiting:
            self._advance(key, steps, None, finished)
        hands = self._choose()
        if hands and isinstance(hands[0].wanted, Encode):
            for hand, embeddings in self._encode(hands):
                self._advance(hand.key, hand.steps, embeddings, finished, hand.is_awaited)
        elif hands:
            for hand, row, logits in self._feed(hands):
                hand.num_fed += len(row.ids)
                assert isinstance(hand.wanted, Row)
                if isinstance(logits, Exception) or hand.num_fed == len(hand.wanted.ids):
                    self._advance(hand.key, hand.steps, logits, finished, hand.is_awaited)
        return finished

    def _choose(self) -> list[_Hand]:
        """Those of one kind that want what the first of them wants: a window, or ids."""
        kinds: list[list[_Hand]] = [[] for _ in PATIENCE]
        for hand in self._hands.values():
            kinds[hand.kind].append(hand)
        waiting = [kind for kind, hands in enumerate(kinds) if hands]
        if not waiting:
            return []
        late = [kind for kind in waiting if self._passed[kind] >= PATIENCE[kind]]
        # never two in a row past the first: it was passed over by one call, and goes now
        chosen = late[-1] if late and not self._passed[waiting[0]] else waiting[0]
        for kind in waiting:
            self._passed[kind] = 0 if kind == chosen else self._passed[kind] + 1
        wanted = type(kinds[chosen][0].wanted)
        return [hand for hand in kinds[chosen] if isinstance(hand.wanted, wanted)]

    def _encode(self, hands: list[_Hand]) -> list[tuple[_Hand, Any]]:
        """Windows of one length at once, as many as the tower likes."""
        wanted = [(hand, hand.wanted.features) for hand in hands if isinstance(hand.wanted, Encode)]
        length = wanted[0][1].shape[-1]
        chosen = [one for one in wanted if one[1].shape[-1] == length]
        chosen = chosen[: self._engine.windows_at_once]
        try:
            found = list(self._engine.encode(np.stack([features for _, features in chosen])))
        except Exception as error:
            return [(hand, error) for hand, _ in chosen]
        return [(hand, embeddings) for (hand, _), embeddings in zip(chosen, found, strict=True)]

    def _feed(self, hands: list[_Hand]) -> list[tuple[_Hand, Row, Any]]:
        """Rows in one step, and their logits."""
        rows = self._plan(hands)
        try:
            logits: list[Any] = [*self._engine.step([row for _, row in rows])]
        except Exception:  # one row cannot be fed: find out whose
            logits = [self._alone(row) for _, row in rows]
        return [(hand, row, got) for (hand, row), got in zip(rows, logits, strict=True)]

    def _plan(self, hands: list[_Hand]) -> list[tuple[_Hand, Row]]:
        planned: list[tuple[_Hand, Row]] = []
        budget = PREFILL_IDS
        for hand in hands:
            assert isinstance(hand.wanted, Row)
            if hand.kind == 0:
                planned.append((hand, hand.piece(hand.wanted, SHORT_IDS)))
            elif budget > 0:
                planned.append((hand, hand.piece(hand.wanted, budget)))
                budget -= len(planned[-1][1].ids)
        return planned

    def _alone(self, row: Row) -> Any:
        try:
            return self._engine.step([row])[0]
        except Exception as error:
            return error

    def _advance(
        self,
        key: Hashable,
        steps: Steps[Any],
        got: Any,
        finished: list[Finished],
        is_awaited: bool = False,
    ) -> None:
        """Go on to what `steps` want next, or to their end."""
        self._hands.pop(key, None)
        try:
            if isinstance(got, Exception):
                wanted = steps.throw(got)
            else:
                wanted = next(steps) if got is None else steps.send(got)
        except StopIteration as over:
            finished.append(Finished(key, over.value))
        except Exception as error:
            finished.append(Finished(key, error=error))
        else:
            is_urgent = wanted.is_urgent if isinstance(wanted, Encode) else wanted.num_logits > 0
            self._hands[key] = _Hand(key, steps, wanted, is_awaited or is_urgent)
