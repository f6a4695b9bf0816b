"""A model's own opinion of each level. In: a model, samples. Out: attribute -> chances.

The model says a sentence of its form, greedily, in the language of the rules. Where it begins a
phrase of an attribute, the other phrases that begin so are scored, too: a level's chance is its
share of them.
"""

from collections.abc import Iterator

import numpy as np

from streamer.core.rules.form import BEGIN, State
from streamer.core.rules.settings import Rules
from streamer.model.listener import Listener
from streamer.model.offline import hear_turn
from streamer.model.scheduler import drive
from streamer.model.thinker import Thinker, form_of

LEAST = 1e-5  # a phrase that is less likely is not followed


def opinions(thinker: Thinker, samples: np.ndarray, rules: Rules) -> dict[str, list[float]]:
    """attribute -> the chance of each of its levels."""
    listener = hear_turn(thinker, samples, language=rules.language)
    try:
        return Opinions(thinker, listener, rules).said()
    finally:
        listener.close()


class Opinions:
    """The sentence of a listener whose turn is over, with the doubt about its levels."""

    def __init__(self, thinker: Thinker, listener: Listener, rules: Rules) -> None:
        self._levels = thinker.card.speaking(rules.language).attributes
        self._listener = listener
        form = form_of(thinker, rules)
        assert form is not None
        self._form = form

    def said(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        state, ids, steps = BEGIN, [], []
        while not state.is_over:
            logits, allowed = self._logits(), self._form.allowed(state)
            steps.append((state, logits))
            ids.append(int(allowed[logits[allowed].argmax()]))
            after = self._form.step(state, ids[-1])
            if after.said != state.said:  # the clause before this id is whole
                name = list(self._levels)[(after.said ^ state.said).bit_length() - 1]
                found[name] = self._doubted(name, ids, steps)
                ids, steps = [], []
            else:
                self._listener.sequence.extend(ids[-1:])
            state = after
        return found

    def _doubted(self, name: str, ids: list[int], steps: list) -> list[float]:
        """The chances where the clause's ids first part the levels; the sequence then holds all of
        them. steps: the state and the logits before each id."""
        begin = len(self._listener.sequence) - len(ids) + 1
        at = next(i for i, (state, _) in enumerate(steps) if self._parts(state, name))
        self._listener.sequence.replace_tail(begin + at)
        chances = [0.0] * len(self._levels[name])
        for level, chance in self._leaves(*steps[at], name, 1.0):
            chances[level] += chance
        self._listener.sequence.replace_tail(begin)
        self._listener.sequence.extend(tuple(ids))
        return [round(chance, 6) for chance in chances]

    def _logits(self) -> np.ndarray:
        return drive(self._listener.engine, self._listener.feed(1))[-1]

    def _reachable(self, state: State, name: str) -> set[int]:
        """Levels of an attribute whose phrases the clause that stands there may become."""
        phrases, levels = self._form.open_phrases(state), enumerate(self._levels[name])
        return {i for i, level in levels if not phrases.isdisjoint(level["phrases"])}

    def _parts(self, state: State, name: str) -> bool:
        """Whether the next id tells levels of an attribute apart."""
        levels = self._reachable(state, name)
        return any(some != levels for _, some in self._ways(state, name).values())

    def _ways(self, state: State, name: str) -> dict[int, tuple[State, set[int]]]:
        """Each next id that may lead to the attribute, the state after it, and the levels left."""
        steps = {int(id_): self._form.step(state, int(id_)) for id_ in self._form.allowed(state)}
        ways = {id_: (after, self._reachable(after, name)) for id_, after in steps.items()}
        return {id_: (after, levels) for id_, (after, levels) in ways.items() if levels}

    def _leaves(
        self, state: State, logits: np.ndarray, name: str, share: float
    ) -> Iterator[tuple[int, float]]:
        """(level, chance) of each way on, until one level is left."""
        ways = self._ways(state, name)
        scores = logits[list(ways)].astype(float)
        odds = np.exp(scores - scores.max())
        begin = len(self._listener.sequence)
        parts = (share * odds / odds.sum()).tolist()
        for (token, (after, levels)), part in zip(ways.items(), parts, strict=True):
            if part < LEAST:
                continue
            if len(levels) == 1:
                yield next(iter(levels)), part
                continue
            self._listener.sequence.extend((token,))
            yield from self._leaves(after, self._logits(), name, part)
            self._listener.sequence.replace_tail(begin)
