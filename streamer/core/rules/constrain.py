"""One answer's rules. In: `Rules`, the answer's ids. Out: a `Constraint` on the next choice.

A rule is a pure function of the ANSWER's ids, never of the prompt (whose words must stay sayable),
so it needs no undo when a block is rolled back (docs/decoding.md). How it acts on logits is
model/choose.py's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamer.core.rules.id_sets import (
    Ids,
    adjacent_ids,
    comma_ids,
    early_end_ids,
    none,
    role_ids,
    too_early_ids,
)
from streamer.core.rules.settings import Rules
from streamer.core.rules.split_character import ByText, constrain_open
from streamer.core.text.characters import PUNCTUATION, SENTENCE_ENDS, content_since, trailing_run
from streamer.core.text.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    """What one step must do, as arrays of ids, int64, each without repeats.

    `commas`, `adjacency` and `ngram` are dropped, in the order ngram, adjacency, commas, while
    every id is banned; `never` and the vocabulary's own mask are not. When nothing at all is left,
    `fallback` is chosen.
    """

    index: int  # of the id to be chosen, in the answer
    never: Ids  # beyond the vocabulary's mask: an end that comes too early, a role word
    commas: Ids
    adjacency: Ids
    ngram: Ids
    penalised: Ids  # logits divided by `penalty` where positive, multiplied where negative
    penalty: float
    lowered: Ids  # logits less `bias`
    bias: float
    recent: tuple[int, ...]  # the last `loop_window` answer ids
    fallback: int  # an EOS id
    # a split character is open: no other ids than these, in place of the mask
    only: Ids | None = None


def constrain(vocabulary: Vocabulary, rules: Rules, answer: Sequence[int]) -> Constraint:
    """The constraint on the id behind `answer`, which holds no id of the prompt's."""
    answer = list(answer)
    text, pending = vocabulary.read(answer)
    if pending and rules.clean:
        by_text = constrain_open(vocabulary, rules, text, pending, len(answer))
    else:
        by_text = ByText(
            only=None,
            never=_never(vocabulary, rules, text, len(answer)),
            commas=_commas(vocabulary, rules, text),
            adjacency=_adjacency(vocabulary, rules, text),
            lowered=_lowered(vocabulary, rules, text, len(answer)),
        )
    return Constraint(
        index=len(answer),
        ngram=_ngram(vocabulary, rules, answer),
        penalised=_penalised(vocabulary, rules, answer),
        penalty=rules.repetition_penalty,
        bias=rules.end_bias,
        recent=tuple(answer[-rules.loop_window :]) if rules.loop_window else (),
        fallback=vocabulary.fallback,
        **by_text._asdict(),
    )


def _never(vocabulary: Vocabulary, rules: Rules, text: str, index: int) -> Ids:
    early = too_early_ids(vocabulary, rules, index)
    roles = role_ids(vocabulary, text) if rules.clean else none
    if not len(roles):
        return early
    return roles if not len(early) else np.union1d(early, roles)


def _commas(vocabulary: Vocabulary, rules: Rules, text: str) -> Ids:
    if not rules.comma_gap:
        return none
    return comma_ids(vocabulary, rules, content_since(text, PUNCTUATION, rules.comma_gap))


def _adjacency(vocabulary: Vocabulary, rules: Rules, text: str) -> Ids:
    if not rules.adjacency:
        return none
    return adjacent_ids(vocabulary, text[-1:], min(trailing_run(text), 2))


def _lowered(vocabulary: Vocabulary, rules: Rules, text: str, index: int) -> Ids:
    if not rules.end_gap or not rules.end_bias or index < rules.min_new_tokens - 1:
        return none  # before min_new_tokens the ends are banned anyway
    marks = SENTENCE_ENDS if rules.end_since == "sentence" else PUNCTUATION
    return early_end_ids(vocabulary, rules, content_since(text, marks, rules.end_gap))


def _ngram(vocabulary: Vocabulary, rules: Rules, answer: list[int]) -> Ids:
    """Ids that would complete an n-gram which the content history already holds.

    Fragments of characters are not content: three of them spell one rare character, which may stand
    twice.
    """
    if not rules.ngram:
        return none
    content = vocabulary.has_content
    history = [i for i in answer if content[i]]
    width = rules.ngram - 1
    tail = history[len(history) - width :]
    starts = range(len(history) - width)
    found = {history[i + width] for i in starts if history[i : i + width] == tail}
    return np.array(sorted(found), dtype=np.int64) if found else none


def _penalised(vocabulary: Vocabulary, rules: Rules, answer: list[int]) -> Ids:
    if rules.repetition_penalty == 1.0 or not rules.penalty_window:
        return none
    pure = vocabulary.is_pure_han
    found = {i for i in answer[-rules.penalty_window :] if pure[i]}
    return np.array(sorted(found), dtype=np.int64) if found else none
