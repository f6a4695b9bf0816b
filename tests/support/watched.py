"""Parts of a stream that note or change what goes through them.

The stages know the models as Parts alone (streamer/stages/ports.py). So a wrapper between the two
sees every call, and replaces no method of either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from streamer.stages.ports import Side

Wrap = Callable[[Any], Any]


@dataclass(frozen=True)
class Between:
    """Parts whose drafters, targets, emitters and edge's batcher are wrapped."""

    parts: Any
    drafter_of: Wrap | None = None
    target_of: Wrap | None = None
    emitter_of: Wrap | None = None
    batcher_of: Wrap | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.parts, name)

    @property
    def edge(self) -> Side | None:
        side = self.parts.edge
        return side and replace(side, batcher=_wrapped(side.batcher, self.batcher_of))

    def drafter(self, edge: Any, ranges: Any) -> Any:
        return _wrapped(self.parts.drafter(edge, ranges), self.drafter_of)

    def target(self) -> Any:
        return _wrapped(self.parts.target(), self.target_of)

    def emitter(self) -> Any:
        return _wrapped(self.parts.emitter(), self.emitter_of)


def _wrapped(one: Any, wrap: Wrap | None) -> Any:
    return one if one is None or wrap is None else wrap(one)


@dataclass(frozen=True)
class Passing:
    """A drafter, target, emitter, batcher or engine that is handed on as it is; a subclass adds to
    one method."""

    inner: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)
