"""A whole recording, heard by models that nobody else uses now. In: samples. Out: listeners.

For what decodes in its own way: calibration, the warm-up, benches. Turns go through stages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.turn_items import Closed, Heard, Item, TurnOpened
from streamer.model.audio.turn_cutter import PartCutter
from streamer.model.listener import Listener
from streamer.model.scheduler import drive
from streamer.model.thinker import Thinker


def hear_parts(
    thinkers: Sequence[Thinker], chunks: Iterable[NDArray[np.float32]], prefills: bool = True
) -> Iterator[tuple[list[Listener], bool]]:
    """Each part of a recording: a listener per model, its turn over; and whether it holds speech.

    chunks: samples [n] float32 at 16 kHz. prefills: the last window is prefilled, too. The slots
    are given back when the next part is asked for, or the iterator is closed.
    """
    listeners: list[Listener] = []
    try:
        for item in _items(PartCutter(min(t.card.max_turn_s for t in thinkers)), chunks):
            if isinstance(item, TurnOpened):
                listeners += map(Listener, thinkers)
            for listener in listeners:
                _hear(listener, item, prefills)
            if isinstance(item, Closed):
                yield listeners, item.has_speech
                _close(listeners)
    finally:
        _close(listeners)


def _hear(listener: Listener, item: Item, prefills: bool) -> None:
    steps = None
    if isinstance(item, Heard):
        steps = listener.hear(item)
    elif isinstance(item, Closed):
        steps = listener.finish(item.rest, item.maximum, prefills)
    if steps is not None:
        drive(listener.engine, steps)


def _items(cutter: PartCutter, chunks: Iterable[NDArray[np.float32]]) -> Iterator[Item]:
    for chunk in chunks:
        yield from cutter.push(chunk) if len(chunk) else ()
    yield from cutter.close()


def _close(listeners: list[Listener]) -> None:
    while listeners:
        listeners.pop().close()
