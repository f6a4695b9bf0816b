"""What a stream wants from a model, as a generator: it yields rows and is sent their logits.

All of prefill, redo, draft and verify are written once in this form. One stream drives it row by row (`drive`), many
streams share an engine (`Rounds`): each round feeds the next row of every one of them in one `Engine.step`.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

from streamer.model.engine import Engine, Row

T = TypeVar("T")
Steps = Generator[Row, Tensor, T]


def drive(engine: Engine, steps: Steps[T]) -> T:
    """Run one stream's steps to their end, nobody else's."""
    try:
        row = next(steps)
        while True:
            row = steps.send(engine.step([row])[0])
    except StopIteration as over:
        value: T = over.value
        return value


@dataclass(frozen=True, slots=True)
class Finished:
    """What the steps under `key` came to: a value, or the error that ended them."""

    key: Hashable
    value: Any = None
    error: Exception | None = None


class Rounds:
    """Steps of many streams on one engine. Not thread-safe: one thread adds and runs rounds.

    A stream whose steps fail ends alone; the others of its round are fed all the same.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: list[tuple[Hashable, Steps[Any]]] = []  # added, not started
        self._rows: dict[Hashable, tuple[Steps[Any], Row]] = {}  # started, with the row to be fed next

    def __len__(self) -> int:
        return len(self._waiting) + len(self._rows)

    def add(self, key: Hashable, steps: Steps[Any]) -> None:
        """Take part from the next round on. `key` must not be in hand."""
        self._waiting.append((key, steps))

    def drop(self, key: Hashable) -> None:
        """Take no further part: the steps are closed where they stand. Unknown keys are ignored."""
        for waiting in [w for w in self._waiting if w[0] == key]:
            self._waiting.remove(waiting)
            waiting[1].close()
        if key in self._rows:
            self._rows.pop(key)[0].close()

    def run(self) -> list[Finished]:
        """One round: start what waits, feed all rows at once, say what is finished."""
        finished: list[Finished] = []
        waiting, self._waiting = self._waiting, []
        for key, steps in waiting:
            self._advance(key, steps, None, finished)
        rows = list(self._rows.items())
        if not rows:
            return finished
        try:
            logits: list[Tensor | Exception] = [*self._engine.step([row for _, (_, row) in rows])]
        except Exception:  # one row cannot be fed: find out whose
            logits = [self._alone(row) for _, (_, row) in rows]
        for (key, (steps, _)), got in zip(rows, logits, strict=True):
            self._advance(key, steps, got, finished)
        return finished

    def _alone(self, row: Row) -> Tensor | Exception:
        try:
            return self._engine.step([row])[0]
        except Exception as error:
            return error

    def _advance(
        self, key: Hashable, steps: Steps[Any], got: Tensor | Exception | None, finished: list[Finished]
    ) -> None:
        """Go on to the next row of `steps`, or to their end."""
        self._rows.pop(key, None)
        try:
            if isinstance(got, Exception):
                self._rows[key] = steps, steps.throw(got)
            else:
                self._rows[key] = steps, next(steps) if got is None else steps.send(got)
        except StopIteration as over:
            finished.append(Finished(key, over.value))
        except Exception as error:
            finished.append(Finished(key, error=error))
