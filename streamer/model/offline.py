"""A whole recording, heard by models that nobody else uses now. In: samples. Out: listeners.

For what decodes in its own way: calibration, the warm-up, benches. Turns go through stages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.offset import OffsetFilter
from streamer.core.audio.turn_items import Closed, Heard, Item, TurnOpened
from streamer.model.audio.part_cutter import PartCutter
from streamer.model.listener import Listener
from streamer.model.scheduler import drive
from streamer.model.thinker import Thinker

Samples = NDArray[np.float32]


def hear_parts(
    thinkers: Sequence[Thinker],
    chunks: Iterable[Samples],
    prefills: bool = True,
    measures: bool = False,
) -> Iterator[tuple[list[Listener], Closed]]:
    """Each part of a recording: a listener per model, its turn over; and how the turn closed.

    The slots are given back when the next part is asked for, or the iterator is closed.
    """
    listeners: list[Listener] = []
    try:
        for item in items_of(
            chunks, min(thinker.card.max_turn_s for thinker in thinkers), measures
        ):
            if isinstance(item, TurnOpened):
                listeners += map(Listener, thinkers)
            for listener in listeners:
                hear(listener, item, prefills)
            if isinstance(item, Closed):
                yield listeners, item
                _close(listeners)
    finally:
        _close(listeners)


def hear_turn(thinker: Thinker, samples: Samples, prefills: bool = True) -> Listener:
    """A listener whose turn was `samples`, no longer than `max_turn_s`; the caller closes it."""
    listener = Listener(thinker)
    for item in items_of([samples], thinker.card.max_turn_s):
        hear(listener, item, prefills)
    return listener


def items_of(
    chunks: Iterable[Samples], max_turn_s: float, measures: bool = False
) -> Iterator[Item]:
    """The items of a recording's turns. chunks: samples [n] float32 at 16 kHz."""
    cutter, offset = PartCutter(max_turn_s, measures=measures), OffsetFilter()
    for chunk in chunks:
        if len(chunk):
            yield from cutter.push(offset.push(chunk))
    yield from cutter.close()


def hear(listener: Listener, item: Item, prefills: bool = True) -> None:
    """Take `item` in. prefills: the turn's last window is prefilled, too, not only encoded."""
    steps = None
    if isinstance(item, Heard):
        steps = listener.hear(item)
    elif isinstance(item, Closed):
        steps = listener.finish(item.rest, item.maximum, prefills)
    if steps is not None:
        drive(listener.engine, steps)


def _close(listeners: list[Listener]) -> None:
    while listeners:
        listeners.pop().close()
