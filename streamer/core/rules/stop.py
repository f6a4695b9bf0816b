"""When an answer ends, why, and whether its last id stays.

Tested at every id before it is committed, inside a block too; nothing after the stop is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamer.core.rules.settings import Rules
from streamer.core.text.characters import SENTENCE_ENDS
from streamer.core.text.vocabulary import Vocabulary

# Values of a description's `stop_reason`; the first four are found here, the others by callers.
STOP_REASONS = ("sentence", "eos", "loop", "max_tokens", "no_speech", "cancelled", "error")


@dataclass(frozen=True, slots=True)
class Stop:
    """`reason` is one of STOP_REASONS; `keep`: the id that caused it belongs to the answer."""

    reason: str
    keep: bool


SENTENCE = Stop("sentence", True)
MAX_TOKENS = Stop("max_tokens", True)
EOS = Stop("eos", False)
LOOP = Stop("loop", False)


def stop(
    vocabulary: Vocabulary, rules: Rules, answer: Sequence[int], candidate: int
) -> Stop | None:
    """Whether the answer ends with `candidate` after `answer`. None: commit it and go on."""
    if candidate in vocabulary.eos:
        return EOS
    if len(answer) >= rules.min_new_tokens - 1 and _ends_sentence(vocabulary, answer, candidate):
        return SENTENCE
    if rules.loop_global and completes_loop(rules, answer, candidate):
        return LOOP
    if len(answer) + 1 >= rules.max_new_tokens:
        return MAX_TOKENS
    return None


def first_stop(
    vocabulary: Vocabulary, rules: Rules, answer: Sequence[int], begin: int
) -> tuple[int, Stop] | None:
    """Place and Stop of the first id of `answer`, from place `begin` on, with which it ends; None:
    none does.

    `stop` at every id, which is asked only where there is something to ask about.
    """
    may_end = vocabulary.may_end
    period = rules.loop_max_period if rules.loop_global else 0
    last_place = rules.max_new_tokens - 1
    places: dict[int, int] = {}  # of the ids so far, the last one of each
    came_before = False
    for at in range(max(0, begin - period - 1), len(answer)):
        token = answer[at]
        distance = at - places.get(token, -period - 1)
        places[token] = at
        # A loop of period 1 repeats the id before; in a longer loop that id, too, came before.
        may_loop = distance == 1 or (distance <= period and came_before)
        came_before = distance <= period
        if at >= begin and (may_end[token] or at >= last_place or may_loop):
            stopped = stop(vocabulary, rules, answer[:at], token)
            if stopped is not None:
                return at, stopped
    return None


def _ends_sentence(vocabulary: Vocabulary, answer: Sequence[int], candidate: int) -> bool:
    if vocabulary.invalid[candidate]:
        return not SENTENCE_ENDS.isdisjoint(vocabulary.piece(answer, candidate))
    return bool(vocabulary.ends[candidate])


def completes_loop(rules: Rules, answer: Sequence[int], candidate: int) -> bool:
    """Whether with `candidate` the last max(loop_min_ids, 2p) ids have a period p in bounds."""
    if candidate not in answer[-rules.loop_max_period :]:  # nearly always: nothing to look for
        return False
    longest = max(rules.loop_min_ids, 2 * rules.loop_max_period)
    tail = [*answer[max(0, len(answer) + 1 - longest) :], candidate]
    periods = range(1, min(rules.loop_max_period, len(tail) // 2) + 1)
    return any(_repeats(tail, p, max(rules.loop_min_ids, 2 * p)) for p in periods)


def loop_suspected(answer: Sequence[int]) -> bool:
    """Whether the last ids look like the start of a loop: for some period p <= 8 the last three or
    more came again.

    Three for p <= 6, p / 2 for longer ones: earlier than `completes_loop`, so that the cloud can
    look first.
    """
    tail = list(answer[-12:])
    if not tail or tail[-1] not in tail[-9:-1]:  # nearly always: nothing to look for
        return False
    return any(_repeats(tail, p, p + max(3, p // 2)) for p in range(1, 9))


def _repeats(tail: list[int], period: int, width: int) -> bool:
    """Whether the last `width` ids have this period."""
    if len(tail) < width or tail[-1 - period] != tail[-1]:
        return False
    ids = tail[-width:]
    return ids[period:] == ids[:-period]
