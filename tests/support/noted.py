"""An engine that notes what it was asked for."""

from dataclasses import dataclass, field, replace

from sessions import Passing


@dataclass(frozen=True)
class NotedEngine(Passing):
    """Keeps the rows of each step, and how many windows each encoding took."""

    steps: list = field(default_factory=list)
    batches: list = field(default_factory=list)

    def step(self, rows):
        self.steps.append([row._replace(ids=list(row.ids)) for row in rows])
        return self.inner.step(rows)

    def encode(self, features):
        self.batches.append(len(features))
        return self.inner.encode(features)


def noting(thinker):
    """The thinker with such an engine."""
    return replace(thinker, engine=NotedEngine(thinker.engine))
