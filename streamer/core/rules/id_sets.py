"""The ids that each rule names. In: a vocabulary, a state (count, character). Out: ids, int64.

Each set is computed once per state from the vocabulary's table and kept there: a step only looks it
up. With `rules.clean` the ids that are never emitted are left out of the sets, which makes them ten
times smaller.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from streamer.core.rules.settings import Rules
from streamer.core.text.characters import is_han
from streamer.core.text.vocabulary import Vocabulary

Ids = NDArray[np.int64]
none: Ids = np.zeros(0, dtype=np.int64)

# The template words: the original leaked them in 29-33 % of its outputs (docs/decoding.md).
ROLES = ("human", "user", "assistant", "system")
_ROLE = re.compile(r"[\W_]*(?:" + "|".join(ROLES) + ")", re.IGNORECASE)
_INITIALS = frozenset(role[0] for role in ROLES)
_MARKUP = re.compile(r"^[\W_]+")


def _ids(vocabulary: Vocabulary, flags: NDArray[np.bool_], clean: bool) -> Ids:
    return np.flatnonzero(flags & ~vocabulary.never if clean else flags)


def too_early_ids(vocabulary: Vocabulary, rules: Rules, index: int) -> Ids:
    """Before `min_new_tokens` EOS, and until one id before that sentence ends."""
    if index >= rules.min_new_tokens:
        return none
    ends = index < rules.min_new_tokens - 1

    def make() -> Ids:
        found = _ids(vocabulary, vocabulary.table.end, rules.clean) if ends else none
        return np.union1d(found, np.array(sorted(vocabulary.eos), dtype=np.int64))

    result: Ids = vocabulary.cached(("early", ends, rules.clean), make)
    return result


def comma_ids(vocabulary: Vocabulary, rules: Rules, count: int) -> Ids:
    """Ids that would put a comma-like less than `comma_gap` content characters behind the last
    punctuation.

    `count`: content characters since then, before this id.
    """
    gap = rules.comma_gap

    def make() -> Ids:
        table = vocabulary.table
        first = table.comma_first & (count + table.before < gap)
        return _ids(vocabulary, first | (table.comma & (table.comma_inner < gap)), rules.clean)

    result: Ids = vocabulary.cached(("comma", gap, count, rules.clean), make)
    return result


def early_end_ids(vocabulary: Vocabulary, rules: Rules, count: int) -> Ids:
    """Ids that end the sentence less than `end_gap` content characters behind the last mark."""
    gap = rules.end_gap
    since = rules.end_since

    def make() -> Ids:
        table = vocabulary.table
        if since == "sentence":
            early = count + table.end_before < gap
        else:
            early = np.where(table.end_first, count, 0) + table.end_inner < gap
        return _ids(vocabulary, table.end & early, rules.clean)

    result: Ids = vocabulary.cached(("end", gap, since, count, rules.clean), make)
    return result


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
        return none
    begun = _MARKUP.sub("", line).lower()
    if begun and begun[0] not in _INITIALS:
        return none
    # A whole role word (another drafter's, committed unverified) is past mending: its rest ""
    # would ban every id.
    if not any(role.startswith(begun) for role in ROLES if role != begun):
        return none

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
