"""The constraint on an answer's next id: banned ids, penalised ids and soft biases.

A rule is a pure function of the ANSWER's ids, never of the prompt, whose words must stay sayable.
So it needs no undo when a block is rolled back (docs/decoding.md). It is applied to logits
by model/sampler.py. These rules are for models without a form of the sentence (form.py).

The rules are stated on texts. Only ids that may break one are looked at: those with a mark, once
per state of the text (a count, a word), and those that begin as the text ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from streamer.core.rules.settings import Rules
from streamer.core.text.vocabulary import (
    COMMA_LIKE,
    MARKED,
    PUNCTUATION,
    SENTENCE_ENDS,
    Ids,
    Vocabulary,
    content_since,
    first_word,
    is_han,
    is_letter,
    last_word,
)

# Words of the chat template; a program without this rule leaked them in 29 to 33 % of its outputs.
ROLES = ("human", "user", "assistant", "system")
_ROLE = re.compile(r"[\W_]*(?:" + "|".join(ROLES) + ")", re.IGNORECASE)
_MARKUP = re.compile(r"^[\W_]+")
_TRIPLE = re.compile(r"(.)\1\1", re.DOTALL)


@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    """The rules on one choice, as arrays of ids, int64, each without repeats.

    `commas`, `adjacency` and `ngram` are dropped, in the order ngram, adjacency, commas, while
    every id is banned; `never` and the vocabulary's own mask are not. When nothing at all is left,
    an EOS id is chosen.
    """

    index: int  # of the id to be chosen, in the answer
    never: Ids  # beyond the vocabulary's mask: an end that comes too early, a role word
    commas: Ids
    adjacency: Ids
    ngram: Ids
    penalised: Ids  # logits divided by the rules' penalty where positive, else multiplied
    lowered: Ids  # logits less END_BIAS
    recent: tuple[int, ...]  # the last four answer ids


def constrain(vocabulary: Vocabulary, rules: Rules, answer: Sequence[int]) -> Constraint:
    """The constraint on the id after `answer`, which holds no id of the prompt."""
    answer = list(answer)
    text = vocabulary.text_of(answer)
    marks = _by_marks(vocabulary, rules, text, len(answer))
    roles = _role_ids(vocabulary, text) if rules.clean else ()
    ends = vocabulary.eos if len(answer) < rules.min_new_tokens else ()
    penalised = {i for i in answer[-128:] if vocabulary.is_pure_han[i]}
    content = [i for i in answer if vocabulary.has_content[i]]
    grams: set[int] = set()  # the ends of n-grams that the content would repeat
    if rules.ngram:
        width = rules.ngram - 1
        tail = content[len(content) - width :]
        starts = range(len(content) - width)
        grams = {content[i + width] for i in starts if content[i : i + width] == tail}
    recent = answer[-4:]
    if last_word(text):  # such a word is one id, so a comma may well be every second one
        recent = [i for i in recent if vocabulary.has_content[i]]
    return Constraint(
        index=len(answer),
        never=_array({*marks["early"].tolist(), *ends, *roles}),
        commas=marks["commas"],
        adjacency=_repeated(vocabulary, text) if rules.adjacency else _array(()),
        ngram=_array(grams),
        penalised=_array(penalised),
        lowered=marks["lowered"],
        recent=tuple(recent),
    )


def _broken(rules: Rules, text: str, piece: str, is_early: bool) -> set[str]:
    """The rules on marks that `piece` after `text` would break: "early" (always banned), "commas",
    "lowered"."""
    broken = set()
    if is_early and not SENTENCE_ENDS.isdisjoint(piece):
        broken.add("early")
    is_ended = is_early
    for mark in MARKED.finditer(piece):
        said = text + piece[: mark.start()]
        if mark[0] in COMMA_LIKE:
            if content_since(said, PUNCTUATION, rules.comma_gap) < rules.comma_gap:
                broken.add("commas")
        elif not is_ended:
            is_ended = True
            if content_since(said, SENTENCE_ENDS, rules.end_gap) < rules.end_gap:
                broken.add("lowered")
    return broken


def _by_marks(vocabulary: Vocabulary, rules: Rules, text: str, index: int) -> dict[str, Ids]:
    """The ids that break each of the rules on marks (see `_broken`), once per state of the text."""
    is_early = index < rules.min_new_tokens - 1
    bodies = enumerate(vocabulary.texts)
    marked = vocabulary.cached("marked", lambda: [i for i, body in bodies if MARKED.search(body)])

    def make() -> dict[str, Ids]:
        broken = {
            i: _broken(rules, text, vocabulary.texts[i], is_early)
            for i in marked
            if not (rules.clean and vocabulary.never[i])
        }
        kinds = "early", "commas", "lowered"
        return {kind: _array(i for i in broken if kind in broken[i]) for kind in kinds}

    limits = rules.comma_gap, rules.end_gap, rules.clean
    since_comma = content_since(text, PUNCTUATION, rules.comma_gap)
    since_end = content_since(text, SENTENCE_ENDS, rules.end_gap)
    counts = min(since_comma, rules.comma_gap), min(since_end, rules.end_gap)
    is_in_word = text != "" and is_letter(text[-1])
    found: dict[str, Ids] = vocabulary.cached(("marks", limits, counts, is_in_word, is_early), make)
    return found


def _role_ids(vocabulary: Vocabulary, text: str) -> Sequence[int]:
    """Ids that would complete a role word at the start of the line that `text` ends with, whatever
    the case.

    Blanks and signs before it do not count: "### Human", "**Assistant" are templates too. A whole
    role word (another drafter's, committed unverified) is past mending.
    """
    line = text.rpartition("\n")[2]
    begun = _MARKUP.sub("", line).lower() if len(line) <= 64 else line
    if not any(role.startswith(begun) for role in ROLES if role != begun):
        return ()
    bodies = enumerate(vocabulary.texts)
    found: Sequence[int] = vocabulary.cached(
        ("role", begun), lambda: [i for i, body in bodies if body and _ROLE.match(begun + body)]
    )
    return found


def _repeated(vocabulary: Vocabulary, text: str) -> Ids:
    """Ids that repeat the end of `text`: a word of letters, in any case; a Han character, unless
    the double is a word and this is no third one. And ids that hold a Han character three times in
    a row."""

    def starts() -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for i, body in enumerate(vocabulary.texts):
            if body:
                found.setdefault(first_word(body) or body[0], []).append(i)
            if any(is_han(run[1]) for run in _TRIPLE.finditer(body)):
                found.setdefault("", []).append(i)
        return found

    likely = vocabulary.cached("starts", starts)
    triples = likely.get("", ())
    if word := last_word(text):
        # as it would follow itself
        return _array({*triples, *likely.get(word if text.endswith(" ") else f" {word}", ())})
    end = text[-1:]
    if not is_han(end):
        return _array(triples)
    again = likely.get(end, ())
    if end in vocabulary.doubles and text[-2:] != 2 * end:
        again = [i for i in again if vocabulary.texts[i].startswith(2 * end)]
    return _array({*triples, *again})


def _array(ids: Iterable[int]) -> Ids:
    return np.array(sorted(ids), dtype=np.int64)
