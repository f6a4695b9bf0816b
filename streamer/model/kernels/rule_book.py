"""The rules of one vocabulary as one array that compiled code reads. In: a vocabulary, rules. Out:
int32 [n], or None.

A header (the names below are places in it), then tables: each id's flags and characters, and the
sets of ids that each rule names in each of its states, as core/rules/id_sets.py gives them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.core.rules.id_sets import (
    adjacent_ids,
    comma_ids,
    early_end_ids,
    none,
    role_ids,
    too_early_ids,
)
from streamer.core.rules.settings import Rules
from streamer.core.text.characters import COMMA_LIKE, REPLACEMENT, SENTENCE_ENDS, is_han
from streamer.core.text.vocabulary import Vocabulary

(
    NUM_IDS,
    PENALTY_WINDOW,
    ADJACENCY,
    NGRAM,
    COMMA_GAP,
    END_GAP,
    SINCE_ANY,
    MIN_NEW,
    MAX_NEW,
    LOCAL_WINDOW,
    LOCAL_COUNT,
    LOOP_GLOBAL,
    LOOP_MIN,
    LOOP_PERIOD,
    HAS_ROLES,
    AT_FLAGS,
    AT_STARTS,
    AT_CHARACTERS,
    AT_SETS,
    AT_CODES,
    NUM_CODES,
    AT_WORDS,
    AT_OPENERS,
    AT_FIRSTS,
    AT_RUNS,
    HEADER,
) = range(26)
# Bits of an id's flags; bits of a character above its code point.
HAS_CONTENT, PURE_HAN, INVALID, EOS, ENDS = (1 << i for i in range(5))
CODE = (1 << 21) - 1
ALNUM = 1 << 21
COMMA = 1 << 22
END = 1 << 23
HAN = 1 << 24
# Sets, in their order: two for an end that comes too early, role words at a line's start, runs
# inside an id, then one per count of content characters for commas, then one per count for
# ends.
EARLY_END, EARLY_EOS, ROLE, RUNS, FIRST_COMMA = range(5)
# a state per character that a gap counts; larger gaps are left to core/rules/constrain.py
MOST = 64

Ints = NDArray[np.int32]


@functools.lru_cache(maxsize=16)
def rule_book(vocabulary: Vocabulary, rules: Rules) -> Ints | None:
    """The book, or None for rules that have too many states. Takes .3 s for Qwen's 151,936 ids,
    once."""
    if max(rules.comma_gap, rules.end_gap, rules.ngram, rules.loop_max_period) > MOST:
        return None
    header = _header(vocabulary, rules)
    starts, characters = _characters(vocabulary)
    ends, sets = _ends_and_ids(_sets(vocabulary, rules))
    codes, words, openers, firsts, runs = _by_first_character(vocabulary)
    parts = [header]
    at = HEADER
    for place, part in (
        (AT_FLAGS, _flags(vocabulary)),
        (AT_STARTS, starts),
        (AT_CHARACTERS, characters),
        (AT_SETS, ends),
        (HEADER, sets),
        (AT_CODES, codes),
        (AT_WORDS, words),
        (AT_OPENERS, openers),
        (AT_FIRSTS, firsts),
        (AT_RUNS, runs),
    ):
        if place == HEADER:  # the sets' ids stand behind their ends
            ends += at
        else:
            header[place] = at
        parts.append(part)
        at += len(part)
    return np.concatenate(parts)


def _header(vocabulary: Vocabulary, rules: Rules) -> Ints:
    header = np.zeros(HEADER, np.int32)
    is_penalised = rules.repetition_penalty != 1.0
    for place, value in (
        (NUM_IDS, vocabulary.num_ids),
        (PENALTY_WINDOW, rules.penalty_window if is_penalised else 0),
        (ADJACENCY, rules.adjacency),
        (NGRAM, rules.ngram),
        (COMMA_GAP, rules.comma_gap),
        (END_GAP, rules.end_gap if rules.end_bias else 0),
        (SINCE_ANY, rules.end_since != "sentence"),
        (MIN_NEW, rules.min_new_tokens),
        (MAX_NEW, rules.max_new_tokens),
        (LOCAL_WINDOW, rules.loop_window if rules.loop_local else 0),
        (LOCAL_COUNT, rules.loop_count),
        (LOOP_GLOBAL, rules.loop_global),
        (LOOP_MIN, rules.loop_min_ids),
        (LOOP_PERIOD, rules.loop_max_period),
        (HAS_ROLES, rules.clean),
        (NUM_CODES, len(_by_first_character(vocabulary)[0])),
    ):
        header[place] = min(int(value), np.iinfo(np.int32).max)
    return header


def _flags(vocabulary: Vocabulary) -> Ints:
    flags = np.frombuffer(vocabulary.has_content, np.uint8) * np.int32(HAS_CONTENT)
    flags = flags + np.frombuffer(vocabulary.is_pure_han, np.uint8) * np.int32(PURE_HAN)
    flags += vocabulary.invalid * np.int32(INVALID) + vocabulary.table.end * np.int32(ENDS)
    flags[list(vocabulary.eos)] |= EOS
    return flags.astype(np.int32)


@functools.lru_cache(maxsize=4)
def _characters(vocabulary: Vocabulary) -> tuple[Ints, Ints]:
    """(where each id's characters begin [num_ids + 1], all characters with their bits); U+FFFD is
    never read."""
    texts = [(text or "").replace(REPLACEMENT, "") for text in vocabulary.texts]
    joined = "".join(texts)
    lookup = np.zeros(0x110000, np.int32)
    for c in set(joined):
        bits = (c.isalnum(), c in COMMA_LIKE, c in SENTENCE_ENDS, is_han(c))
        lookup[ord(c)] = ord(c) + sum(
            bit for bit, holds in zip((ALNUM, COMMA, END, HAN), bits, strict=True) if holds
        )
    starts = np.zeros(len(texts) + 1, np.int32)
    np.cumsum([len(text) for text in texts], out=starts[1:])
    return starts, lookup[np.frombuffer(joined.encode("utf-32-le"), np.uint32)]


def _sets(vocabulary: Vocabulary, rules: Rules) -> list[NDArray[Any]]:
    counted = (
        [comma_ids(vocabulary, rules, n) for n in range(rules.comma_gap + 1)]
        if rules.comma_gap
        else [none]
    )
    counted += (
        [early_end_ids(vocabulary, rules, n) for n in range(rules.end_gap + 1)]
        if rules.end_gap
        else []
    )
    return [
        too_early_ids(vocabulary, rules, -1) if rules.min_new_tokens > 1 else none,
        too_early_ids(vocabulary, rules, rules.min_new_tokens - 1),
        role_ids(vocabulary, "") if rules.clean else none,
        adjacent_ids(vocabulary, "", 0),
        *counted,
    ]


def _ends_and_ids(sets: Sequence[NDArray[Any]]) -> tuple[Ints, Ints]:
    """(where each set begins and the last one ends, relative; all their ids)."""
    return np.cumsum([0, *map(len, sets)], dtype=np.int32), np.concatenate(sets).astype(np.int32)


@functools.lru_cache(maxsize=4)
def _by_first_character(vocabulary: Vocabulary) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Ids that begin with a Han character: (their code points, sorted; whether its double is a
    word; where its ids begin [codes + 1]; the ids; how often each says it at its start)."""
    table = vocabulary.table
    ids = np.flatnonzero(table.leading_run > 0)
    ids = ids[np.argsort(table.first[ids], kind="stable")]
    codes, begins = np.unique(table.first[ids], return_index=True)
    words = np.fromiter((chr(code) in vocabulary.doubles for code in codes), np.int32, len(codes))
    openers = np.append(begins, len(ids)).astype(np.int32)
    return (
        codes.astype(np.int32),
        words,
        openers,
        ids.astype(np.int32),
        table.leading_run[ids].astype(np.int32),
    )
