"""Whole recordings on models without stages: for calibration, the warm-up and benches.

The models must have no other user meanwhile. Turns of clients go through stages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.turn_items import Closed, Heard, Item, TurnOpened
from streamer.core.calibration import Block, Prefix
from streamer.core.decoding.plan import Plan, Verdict, VerifyRequest, fires, num_same, prefix_hash
from streamer.core.rules.settings import LevelWeights, Rules, Sampling
from streamer.model.audio.ear import PitchTrack, f0_of
from streamer.model.audio.turns import TurnCutter
from streamer.model.decoding import IncrementalDrafter, LocalVerifier
from streamer.model.listener import Listener
from streamer.model.scheduler import drive
from streamer.model.thinker import Thinker

Samples = NDArray[np.float32]


def hear_parts(
    thinkers: Sequence[Thinker],
    chunks: Iterable[Samples],
    prefills: bool = True,
    measures: bool = False,
    language: str = "",
) -> Iterator[tuple[list[Listener], Closed]]:
    """Each part of a recording: a listener per model, its turn over; and how the turn closed.
    language: of the sentence; "" is the models' first.

    The slots are given back when the next part is asked for, or the iterator is closed.
    """
    listeners: list[Listener] = []
    most_s = min(thinker.card.max_turn_s for thinker in thinkers)
    try:
        for item in items_of(chunks, most_s, measures):
            if isinstance(item, TurnOpened):
                listeners = [Listener(thinker, language) for thinker in thinkers]
            for listener in listeners:
                hear(listener, item, prefills)
            if isinstance(item, Closed):
                yield listeners, item
                for listener in listeners:
                    listener.close()
    finally:
        for listener in listeners:
            listener.close()


def items_of(
    chunks: Iterable[Samples], max_turn_s: float, measures: bool = False
) -> Iterator[Item]:
    """The items of a recording's turns. chunks: samples [n] float32 at 16 kHz."""
    cutter = TurnCutter(SAMPLE_RATE_HZ, max_turn_s, is_recording=True, measures=measures)
    for chunk in chunks:
        yield from cutter.push(chunk.tobytes())
    yield from cutter.commit()


def hear(listener: Listener, item: Item, prefills: bool = True) -> None:
    """Take `item` in. prefills: the turn's last window is prefilled, too, not only encoded."""
    steps = None
    if isinstance(item, Heard):
        steps = listener.hear(item)
    elif isinstance(item, Closed):
        steps = listener.finish(item.rest, item.maximum, prefills)
    if steps is not None:
        drive(listener.engine, steps)


def shadow(
    edge: Listener, cloud: Listener, plan: Plan, weights: LevelWeights
) -> Callable[[Prefix], Block]:
    """A function that gives the block that the edge drafts after a prefix, and the cloud's verdict,
    greedy, on a turn whose audio is in.

    Audio is encoded and prefilled once per model. Each question rolls both sequences back by length
    and feeds only the ids that differ from the last one.
    """
    drafter = IncrementalDrafter(edge, plan.rules, Sampling(), weights)
    verifier = LocalVerifier(cloud, plan.rules, Sampling(), weights)
    numbers = count(1)

    def block_at(prefix: Prefix) -> Block:
        sequence = edge.sequence
        num_kept = num_same(sequence.answer, prefix)
        sequence.replace_tail(sequence.answer_start + num_kept, prefix[num_kept:])
        ids, signals = drive(edge.engine, drafter.draft(plan.k))
        request = VerifyRequest(next(numbers), 0, prefix_hash([]), prefix, tuple(ids))
        verdict = drive(cloud.engine, verifier.verify(request))
        assert isinstance(verdict, Verdict), "requests are numbered in order and start from nothing"
        doubt = max(signal.entropy for signal in signals)
        if fires(math.inf, edge.thinker.vocabulary, prefix, ids, signals):
            doubt = math.inf
        return Block(tuple(ids), doubt, verdict.n_accepted, verdict.next_id)

    return block_at


def warm_up(thinker: Thinker) -> None:
    """Take `thinker` once through everything a turn does, on noise; no slot stays taken."""
    num_samples = SAMPLE_RATE_HZ * 5 // 2  # one whole window and a part of one
    noise = np.random.default_rng(0).normal(0.0, 0.01, num_samples).astype(np.float32)
    for (listener,), _ in hear_parts([thinker], [noise], prefills=False):
        drafter = IncrementalDrafter(listener, Rules(), Sampling(), {"rate": (0, -1, -2, -3, -4)})
        drive(listener.engine, drafter.draft(4))
        for k in (4, 6):  # a verification feeds k + 1 ids
            listener.sequence.extend(range(k + 1))
            drive(listener.engine, listener.feed(num_logits=k + 1))
    rows = PitchTrack().push(noise, is_last=True)  # a turn may be measured
    f0_of(rows, np.ones(len(rows), bool))
