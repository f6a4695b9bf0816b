"""One answer's ids, one after another. In: raw logits, rules, chance. Out: ids, signals, the end.

Greedy choice is compiled (model/kernels/rules.py) and keeps the answer's ids in an array, so that
nothing is decoded, allocated or built per id. What that leaves aside, and chance, go the readable
way (model/choose.py).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamer.core.decoding.gate import Signal
from streamer.core.rules.constrain import constrain
from streamer.core.rules.form import BEGIN, SentenceForm, State
from streamer.core.rules.id_sets import Ids
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules
from streamer.core.rules.stop import stop
from streamer.core.text.vocabulary import Vocabulary
from streamer.model.choose import choose, choose_among
from streamer.model.kernels.lane import Writer
from streamer.model.kernels.rule_book import Ints, rule_book
from streamer.model.kernels.rules import next_id

Floats = NDArray[np.float32]
_SPARE = 128  # ids that an answer's array begins with


# an id; whether the answer ends with it; zeros where no signal was wanted
Choice = tuple[int, bool, Signal]


class Chooser:
    """`begin` with what is said, then `next` per id; or `judge` a block. One answer's, and one
    thread's at a time.

    form: of the sentence. An id that breaks it is chosen again, among those that keep it.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        rules: Rules,
        sampling: Sampling,
        form: SentenceForm | None = None,
    ) -> None:
        self._vocabulary = vocabulary
        self._rules = rules
        self._sampling = sampling
        self._form = form
        # behind these ids of the answer; None: there is no form, or it is left
        self._state: State | None = None if form is None else BEGIN
        self._followed: list[int] = []
        self._is_compiled = sampling.temperature == 0.0
        self._book: Ints | None = None
        self._writer: Writer | None = None
        self._n = 0
        self._hold(np.zeros(_SPARE, np.int64))

    def _hold(self, answer: NDArray[np.int64]) -> None:
        # the same: NumPy takes longer for a few numbers
        self._answer = answer
        self._said = answer.data

    def _prepare(self) -> None:
        """The book and work memory, on the engine's thread: so nobody else waits for a book."""
        self._book = rule_book(self._vocabulary, self._rules)
        self._is_compiled = self._book is not None
        self._scores = np.empty(self._vocabulary.num_ids, np.float32)
        self._marks = np.zeros(self._vocabulary.num_ids, np.int32)
        self._mask = self._vocabulary.never if self._rules.clean else self._vocabulary.never[:0]
        self._penalty = np.float32(self._rules.repetition_penalty)
        self._bias = np.float32(self._rules.end_bias)

    def begin(self, answer: Sequence[int], num_drafted: int = 0) -> None:
        """answer: all that is said, committed or not; its last `num_drafted` are another's."""
        if self._is_compiled and self._book is None:
            self._prepare()
        self._n = len(answer)
        if self._n >= len(self._answer):
            self._hold(np.zeros(2 * self._n, np.int64))
        self._said[: self._n] = array(self._said.format, answer)
        if self._form is not None:
            said = list(answer[: self._n - num_drafted])
            if said[: len(self._followed)] != self._followed:  # some were taken back
                self._followed = []
                self._state = BEGIN
            self._state = self._form.behind(said[len(self._followed) :], self._state)
            self._followed = said

    def next(self, logits: Floats, row: int = 0, wants_signal: bool = True) -> Choice:
        """Choose the id behind the answer from row `row` of raw logits [R, V], and put it there."""
        return self._put(self._choose(logits, row, wants_signal))

    def _put(self, found: Choice) -> Choice:
        if self._n == len(self._answer):
            self._hold(np.append(self._answer, np.zeros_like(self._answer)))
        self._said[self._n] = found[0]
        self._n += 1
        self._follow(found[0])
        return found

    def writer(self, wanted: int, width: int) -> Writer | None:
        """One that chooses up to `wanted` ids behind the answer inside the kernels, from logits of
        `width` ids.

        None: they are to be chosen one by one. Tell what it did to `written`.
        """
        if not self._is_compiled or self._book is None or width != self._vocabulary.num_ids:
            return None
        if self._writer is None:
            self._writer = Writer(self._book, self._mask, width, self._rules)
        while self._n + wanted > len(self._answer):
            self._hold(np.append(self._answer, np.zeros_like(self._answer)))
        self._writer.begin(self._answer, self._n, wanted)
        return self._writer

    def written(self, ids: Sequence[int]) -> int:
        """The writer's `ids` stand behind the answer, in its array. Up to the one that breaks the
        form they are taken; how many is returned."""
        for num_kept, token in enumerate(ids):
            if not self._follow(token):
                self._n += num_kept
                return num_kept
        self._n += len(ids)
        return len(ids)

    def _follow(self, token: int) -> bool:
        """Go on behind `token`, unless it breaks the form."""
        if self._form is None:
            return True
        if self._state is not None:
            state = self._form.step(self._state, token)
            if state is None:
                return False
            self._state = state
        self._followed.append(token)
        return True

    def judge(
        self, logits: Floats, answer: Sequence[int], num_drafted: int, tells: bool = True
    ) -> tuple[list[int], list[float]]:
        """(the ids that stand behind each of the last `num_drafted` + 1 places of `answer`, their
        log-probabilities up to the first that differs from the draft): logits
        [num_drafted + 1, V].

        answer: its last `num_drafted` ids are another's draft. tells: log-probabilities are wanted.
        """
        self.begin(answer, num_drafted)
        ids: list[int] = []
        log_probs: list[float] = []
        first = self._n - num_drafted
        for row in range(num_drafted + 1):
            self._n = first + row
            tells = tells and ids == answer[first : self._n]  # what follows a correction is not
            token, _, signal = self._choose(logits, row, tells)
            ids.append(token)
            log_probs += [signal.log_prob] * tells
            if row < num_drafted and not self._follow(answer[self._n]):
                self._state = None
                self._follow(answer[self._n])
        return ids, log_probs

    def _choose(self, logits: Floats, row: int, wants_signal: bool) -> Choice:
        """The id behind the first `_n` of the answer."""
        found = self._choose_freely(logits, row, wants_signal)
        state = self._state
        form = self._form
        if state is None or form is None or form.step(state, found[0]) is not None:
            return found
        return self._readable(logits[row : row + 1], wants_signal, form.allowed(state))

    def _choose_freely(self, logits: Floats, row: int, wants_signal: bool) -> Choice:
        """Whether or not it keeps the form."""
        return self._compiled(logits, row, wants_signal) or self._readable(
            logits[row : row + 1], wants_signal
        )

    def _compiled(self, logits: Floats, row: int, wants_signal: bool) -> Choice | None:
        if not self._is_compiled:
            return None
        token, is_last, entropy, margin, log_prob = next_id(
            logits[row],
            self._scores,
            self._mask,
            self._book,
            self._marks,
            self._answer,
            self._n,
            self._penalty,
            self._bias,
            wants_signal,
        )
        return (token, is_last, Signal(entropy, margin, log_prob)) if token >= 0 else None

    def _readable(self, logits: Floats, wants_signal: bool, allowed: Ids | None = None) -> Choice:
        said = self._answer[: self._n].tolist()
        constraint = constrain(self._vocabulary, self._rules, said)
        chance = (self._sampling, self._rules, wants_signal)
        if allowed is None:
            found = choose(logits, [constraint], self._vocabulary.never, *chance)
        else:
            found = choose_among(allowed, logits, constraint, *chance)
        [token] = found.ids
        signal = found.signals[0] if wants_signal else Signal(0.0, 0.0, 0.0)
        return token, stop(self._vocabulary, self._rules, said, token) is not None, signal
