"""A sentence on a turn that goes on. In: a listener, the window being filled. Out: its ids.

Drafted by the edge alone, on the KV slot behind what is heard; the turn's own sentence does not
know of it.
"""

from __future__ import annotations

from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules
from streamer.core.rules.stop import stop
from streamer.model.audio.mel import MelWindow
from streamer.model.drafters import IncrementalDrafter
from streamer.model.listener import Listener
from streamer.model.scheduler import Steps


def describe_so_far(
    listener: Listener, window: MelWindow, rules: Rules, sampling: Sampling
) -> Steps[list[int]]:
    """Steps that return the sentence's ids; to be dropped before `listener` feeds again."""
    fork = yield from listener.so_far(window)
    drafter = IncrementalDrafter(fork, rules, sampling)
    vocabulary = listener.thinker.vocabulary
    ids, _ = yield from drafter.draft(rules.max_new_tokens)
    last = stop(vocabulary, rules, ids[:-1], ids[-1])
    return ids if last is None or last.keep else ids[:-1]
