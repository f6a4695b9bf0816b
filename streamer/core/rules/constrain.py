"""The constraint on the next id of an answer: banned ids, penalised ids, soft biases.

A rule is a pure function of the ANSWER's ids, never of the prompt, whose words must stay sayable.
So it needs no undo when a block is rolled back (docs/decoding.md). It is applied to logits
by model/sampler.py. These rules are for models without a form of the sentence (form.py).

The ids that a rule names are looked up: each set is computed once per state (a count, a character)
from the vocabulary's table, and kept there. With `rules.clean` the sets leave out ids that are
never emitted, which makes them ten times smaller.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.core.rules.settings import Rules
from streamer.core.text.characters import (
    COMMA_LIKE,
    PUNCTUATION,
    SENTENCE_ENDS,
    WORD,
    content_since,
    first_word,
    is_han,
    is_letter,
    last_word,
    trailing_run,
)
from streamer.core.text.vocabulary import Ids, Vocabulary

NO_IDS: Ids = np.zeros(0, dtype=np.int64)

# The template words: the original leaked them in 29-33 % of its outputs (docs/decoding.md).
ROLES = ("human", "user", "assistant", "system")
_ROLE = re.compile(r"[\W_]*(?:" + "|".join(ROLES) + ")", re.IGNORECASE)
_INITIALS = frozenset(role[0] for role in ROLES)
_MARKUP = re.compile(r"^[\W_]+")


@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    """The rules on one choice, as arrays of ids, int64, each without repeats.

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
    """The constraint on the id after `answer`, which holds no id of the prompt."""
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
        recent=_recent(vocabulary, rules, answer, text),
        fallback=vocabulary.fallback,
        **by_text._asdict(),
    )


def _recent(vocabulary: Vocabulary, rules: Rules, answer: list[int], text: str) -> tuple[int, ...]:
    """The last ids. After a word of letters those without content are left out: such a word is one
    id, so a comma may well be every second one."""
    if not rules.loop_window:
        return ()
    recent = answer[-rules.loop_window :]
    if last_word(text):
        recent = [i for i in recent if vocabulary.has_content[i]]
    return tuple(recent)


def _never(vocabulary: Vocabulary, rules: Rules, text: str, index: int) -> Ids:
    early = too_early_ids(vocabulary, rules, index)
    roles = role_ids(vocabulary, text) if rules.clean else NO_IDS
    if not len(roles):
        return early
    return roles if not len(early) else np.union1d(early, roles)


def _commas(vocabulary: Vocabulary, rules: Rules, text: str) -> Ids:
    if not rules.comma_gap:
        return NO_IDS
    count = content_since(text, PUNCTUATION, rules.comma_gap)
    return comma_ids(vocabulary, rules, count, _is_in_word(text))


def _adjacency(vocabulary: Vocabulary, rules: Rules, text: str) -> Ids:
    if not rules.adjacency:
        return NO_IDS
    if word := last_word(text):
        return word_ids(vocabulary, word, text.endswith(" "))
    return adjacent_ids(vocabulary, text[-1:], min(trailing_run(text), 2))


def _lowered(vocabulary: Vocabulary, rules: Rules, text: str, index: int) -> Ids:
    if not rules.end_gap or not rules.end_bias or index < rules.min_new_tokens - 1:
        return NO_IDS  # before min_new_tokens the ends are banned anyway
    marks = SENTENCE_ENDS if rules.end_since == "sentence" else PUNCTUATION
    count = content_since(text, marks, rules.end_gap)
    return early_end_ids(vocabulary, rules, count, _is_in_word(text))


def _is_in_word(text: str) -> bool:
    return text != "" and is_letter(text[-1])


def _ngram(vocabulary: Vocabulary, rules: Rules, answer: list[int]) -> Ids:
    """Ids that would complete an n-gram which the content history already holds.

    Fragments of characters are not content: three of them spell one rare character, which may stand
    twice.
    """
    if not rules.ngram:
        return NO_IDS
    content = vocabulary.has_content
    history = [i for i in answer if content[i]]
    width = rules.ngram - 1
    tail = history[len(history) - width :]
    starts = range(len(history) - width)
    found = {history[i + width] for i in starts if history[i : i + width] == tail}
    return np.array(sorted(found), dtype=np.int64) if found else NO_IDS


def _penalised(vocabulary: Vocabulary, rules: Rules, answer: list[int]) -> Ids:
    if rules.repetition_penalty == 1.0 or not rules.penalty_window:
        return NO_IDS
    pure = vocabulary.is_pure_han
    found = {i for i in answer[-rules.penalty_window :] if pure[i]}
    return np.array(sorted(found), dtype=np.int64) if found else NO_IDS


def _ids(vocabulary: Vocabulary, flags: NDArray[np.bool_], clean: bool) -> Ids:
    return np.flatnonzero(flags & ~vocabulary.never if clean else flags)


def too_early_ids(vocabulary: Vocabulary, rules: Rules, index: int) -> Ids:
    """Before `min_new_tokens` EOS, and until one id before that sentence ends."""
    if index >= rules.min_new_tokens:
        return NO_IDS
    ends = index < rules.min_new_tokens - 1

    def make() -> Ids:
        found = _ids(vocabulary, vocabulary.table.end, rules.clean) if ends else NO_IDS
        return np.union1d(found, np.array(sorted(vocabulary.eos), dtype=np.int64))

    result: Ids = vocabulary.cached(("early", ends, rules.clean), make)
    return result


def comma_ids(vocabulary: Vocabulary, rules: Rules, count: int, is_in_word: bool = False) -> Ids:
    """Ids that would put a comma-like less than `comma_gap` of content after the last punctuation.

    `count`: content since then, before this id. is_in_word: a letter is the last character, so an
    id that begins with one begins no word.
    """
    gap = rules.comma_gap

    def make() -> Ids:
        table = vocabulary.table
        before = table.before - WORD * table.starts_word if is_in_word else table.before
        first = table.comma_first & (count + before < gap)
        return _ids(vocabulary, first | (table.comma & (table.comma_inner < gap)), rules.clean)

    result: Ids = vocabulary.cached(("comma", gap, count, is_in_word, rules.clean), make)
    return result


def early_end_ids(
    vocabulary: Vocabulary, rules: Rules, count: int, is_in_word: bool = False
) -> Ids:
    """Ids that end the sentence less than `end_gap` of content after the last mark."""
    gap = rules.end_gap
    since = rules.end_since

    def make() -> Ids:
        table = vocabulary.table
        begun = count - WORD * table.starts_word if is_in_word else count
        if since == "sentence":
            early = begun + table.end_before < gap
        else:
            early = np.where(table.end_first, begun, 0) + table.end_inner < gap
        return _ids(vocabulary, table.end & early, rules.clean)

    result: Ids = vocabulary.cached(("end", gap, since, count, is_in_word, rules.clean), make)
    return result


def word_ids(vocabulary: Vocabulary, word: str, is_apart: bool) -> Ids:
    """Ids that say `word` again, in any case, and ids that hold a run of three Han characters.

    is_apart: a space stands after the word already.
    """

    def by_word() -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for i, text in enumerate(vocabulary.texts):
            if text and (begun := first_word(text)):
                found.setdefault(begun, []).append(i)
        return found

    again = vocabulary.cached(("words",), by_word).get(word if is_apart else f" {word}", ())
    return np.union1d(adjacent_ids(vocabulary, "", 0), np.array(again, dtype=np.int64))


def adjacent_ids(vocabulary: Vocabulary, last: str, run: int) -> Ids:
    """Ids that would say `last` once too often, and ids that hold a run of three themselves.

    `last`: the answer's last character or ""; `run`: how often it stands at the end, 2 for more.
    """

    def make() -> Ids:
        table = vocabulary.table
        banned = table.longest_han_run > 2
        if last and is_han(last):
            is_word = last in vocabulary.doubles
            again = table.first == ord(last)
            banned = banned | (again & (run + table.leading_run > 2) if is_word else again)
        return np.flatnonzero(banned)

    key = last if last and is_han(last) else ""
    result: Ids = vocabulary.cached(("adjacent", key, run if key else 0), make)
    return result


def role_ids(vocabulary: Vocabulary, text: str) -> Ids:
    """Ids that would complete a role word at the start of the line that `text` ends with, whatever
    the case.

    Blanks and signs before it do not count: "### Human", "**Assistant" are templates too.
    """
    line = text.rpartition("\n")[2] if "\n" in text else text
    if len(line) > 64:
        return NO_IDS
    begun = _MARKUP.sub("", line).lower()
    if begun and begun[0] not in _INITIALS:
        return NO_IDS
    # A whole role word (another drafter's, committed unverified) is past mending: its rest ""
    # would ban every id.
    if not any(role.startswith(begun) for role in ROLES if role != begun):
        return NO_IDS

    def make() -> Ids:
        texts = vocabulary.texts
        if not begun:
            found = [i for i, t in enumerate(texts) if t and _ROLE.match(t)]
        else:
            rests = tuple(
                role[len(begun) :] for role in ROLES if role.startswith(begun) and role != begun
            )
            found = [i for i, t in enumerate(texts) if t and t.lower().startswith(rests)]
        return np.array(found, dtype=np.int64)

    result: Ids = vocabulary.cached(("role", begun), make)
    return result


_ALL = 1 << 30


class ByText(NamedTuple):
    """The fields of `Constraint` that depend on characters."""

    only: Ids | None
    never: Ids
    commas: Ids
    adjacency: Ids
    lowered: Ids


def constrain_open(
    vocabulary: Vocabulary, rules: Rules, text: str, pending: bytes, index: int
) -> ByText:
    """The rules after `text` and the bytes `pending` of an open character."""
    allowed = vocabulary.fragments.allowed(pending)
    broken = [(i, breaks(vocabulary, rules, text, piece, index)) for i, piece in allowed]

    def those(kind: str) -> Ids:
        return np.array([i for i, kinds in broken if kind in kinds], dtype=np.int64)

    only = np.array([i for i, _ in allowed], dtype=np.int64)
    return ByText(only, those("early"), those("commas"), those("adjacency"), those("lowered"))


def breaks(vocabulary: Vocabulary, rules: Rules, text: str, piece: str, index: int) -> set[str]:
    """The rules that `piece` after `text` would break: "early" (always banned), "commas",
    "adjacency", "lowered".

    index: place in the answer of the id whose text is `piece`.
    """
    broken = set()
    if rules.adjacency and (word := last_word(text)):
        again = word if text.endswith(" ") else f" {word}"
        broken |= {"adjacency"} if first_word(piece) == again else set()
    if index < rules.min_new_tokens - 1 and not SENTENCE_ENDS.isdisjoint(piece):
        broken.add("early")
    marks = SENTENCE_ENDS if rules.end_since == "sentence" else PUNCTUATION
    for i, character in enumerate(piece):
        said = text + piece[:i]
        if character in COMMA_LIKE and content_since(said, PUNCTUATION, _ALL) < rules.comma_gap:
            broken.add("commas")
        is_first_end = character in SENTENCE_ENDS and SENTENCE_ENDS.isdisjoint(piece[:i])
        if is_first_end and "early" not in broken:
            broken |= {"lowered"} if content_since(said, marks, _ALL) < rules.end_gap else set()
        if rules.adjacency and is_han(character) and said[-1:] == character:
            is_triple = said[-2:] == character * 2
            if is_triple or (i == 0 and character not in vocabulary.doubles):
                broken.add("adjacency")
    return broken
