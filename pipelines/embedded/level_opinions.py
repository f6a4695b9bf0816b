"""A model's own opinion of each level. In: a listener whose turn is over. Out: attribute -> chances.

The model says a sentence of its form, greedily. Where it begins a phrase of an attribute, the other
phrases that begin so are scored, too: a level's chance is its share of them.
"""

from collections.abc import Iterator

import numpy as np

from streamer.core.rules.clauses import MAX_OPENING
from streamer.core.rules.form import BEGIN, Place, SentenceForm, State
from streamer.core.rules.settings import Rules
from streamer.model.listener import Listener
from streamer.model.offline import hear_turn
from streamer.model.scheduler import drive
from streamer.model.thinker import Thinker, form_of

MOST_IDS = 64


def opinions(thinker: Thinker, samples: np.ndarray, rules: Rules) -> dict[str, list[float]]:
    """attribute -> the chance of each of its levels; {} for the sentence without speech."""
    form = form_of(thinker, rules)
    assert form is not None
    listener = hear_turn(thinker, samples)
    try:
        return _said(listener, form, dict(thinker.card.attributes))
    finally:
        listener.close()


def _said(listener: Listener, form: SentenceForm, phrases: dict) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    state: State | None = BEGIN
    for _ in range(MOST_IDS):
        logits = drive(listener.engine, listener.feed(1))[-1]
        allowed = form.allowed(state)
        if isinstance(state, Place) and state.is_over:
            break
        before = _reachable(state, phrases)
        for name in before:
            if len(before) == 1 and name not in found and _parts(form, state, allowed, phrases):
                found[name] = _chances(listener, form, state, logits, phrases, name)
        token = int(allowed[logits[allowed].argmax()])
        listener.sequence.extend((token,))
        state = form.step(state, token)
        if state is None or isinstance(state, str) or state.is_over:
            break
    return found


def _reachable(state: State | None, phrases: dict) -> dict[str, set[int]]:
    """attribute -> levels whose phrases the clause that stands there may become."""
    if not isinstance(state, Place) or not state.clause:
        return {}
    most = MAX_OPENING if state.is_first else 0
    for at in range(min(most, len(state.clause) - 1) + 1):
        found: dict[str, set[int]] = {}
        for name, levels in phrases.items():
            for i, level in enumerate(levels):
                if any(phrase.startswith(state.clause[at:]) for phrase in level["phrases"]):
                    found.setdefault(name, set()).add(i)
        if found:
            return found
    return {}


def _parts(form: SentenceForm, state: Place, allowed: np.ndarray, phrases: dict) -> bool:
    """Whether the next id tells levels apart."""
    here = _reachable(state, phrases)
    after = [_told(form.step(state, int(token)), here, phrases) for token in allowed]
    return any(levels != next(iter(here.values())) for levels in after)


def _told(state: State | None, here: dict[str, set[int]], phrases: dict) -> set[int]:
    name = next(iter(here))
    return _reachable(state, phrases).get(name, set())


def _chances(
    listener: Listener,
    form: SentenceForm,
    state: Place,
    logits: np.ndarray,
    phrases: dict,
    name: str,
) -> list[float]:
    chances = [0.0] * len(phrases[name])
    begin = len(listener.sequence)
    for level, chance in _leaves(listener, form, state, logits, phrases, name, 1.0):
        chances[level] += chance
    listener.sequence.replace_tail(begin)
    return [round(chance, 6) for chance in chances]


def _leaves(
    listener: Listener,
    form: SentenceForm,
    state: Place,
    logits: np.ndarray,
    phrases: dict,
    name: str,
    share: float,
) -> Iterator[tuple[int, float]]:
    """(level, chance) of each way on, until one level is left."""
    levels = _reachable(state, phrases).get(name, set())
    if len(levels) == 1:
        yield next(iter(levels)), share
        return
    allowed = [
        int(token)
        for token in form.allowed(state)
        if _reachable(form.step(state, int(token)), phrases).get(name)
    ]
    if not allowed:  # the clause only begins as a phrase does: the opening, spelled by characters
        return
    scores = logits[allowed].astype(float)
    odds = np.exp(scores - scores.max())
    begin = len(listener.sequence)
    for token, part in zip(allowed, odds / odds.sum(), strict=True):
        after = form.step(state, token)
        if part * share < 1e-5:
            continue
        known = _reachable(after, phrases)[name]
        if len(known) == 1:
            yield next(iter(known)), share * float(part)
            continue
        listener.sequence.extend((token,))
        below = drive(listener.engine, listener.feed(1))[-1]
        yield from _leaves(listener, form, after, below, phrases, name, share * float(part))
        listener.sequence.replace_tail(begin)
