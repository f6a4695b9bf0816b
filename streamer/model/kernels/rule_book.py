"""The rules of one vocabulary as one array that compiled code reads. In: a vocabulary, rules. Out:
int32 [n], or None.

A head (BOOK in cells.py), then tables: each id's flags and characters, and the sets of ids that
each rule names in each of its states, as core/rules/id_sets.py gives them.
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
from streamer.model.kernels.cells import (
    ALNUM,
    BOOK,
    COMMA,
    END,
    ENDS,
    EOS,
    HAN,
    HAS_CONTENT,
    INVALID,
    PURE_HAN,
    Book,
)

# a state per character that a gap counts; larger gaps are left to core/rules/constrain.py
MOST = 64

Ints = NDArray[np.int32]


@functools.lru_cache(maxsize=16)
def rule_book(vocabulary: Vocabulary, rules: Rules) -> Ints | None:
    """The book; None for too many states. Takes 0.3 s for Qwen's 151,936 ids, once."""
    if max(rules.comma_gap, rules.end_gap, rules.ngram, rules.loop_max_period) > MOST:
        return None
    starts, characters = _characters(vocabulary)
    codes, words, openers, firsts, runs = _by_first_character(vocabulary)
    tables = {
        "sets_at": _ends_and_ids(_sets(vocabulary, rules), len(BOOK)),
        "flags_at": _flags(vocabulary),
        "starts_at": starts,
        "characters_at": characters,
        "codes_at": codes,
        "words_at": words,
        "openers_at": openers,
        "firsts_at": firsts,
        "runs_at": runs,
    }
    places = np.cumsum([len(BOOK), *map(len, tables.values())]).tolist()
    head = Book(
        **_settings(vocabulary, rules),
        num_codes=len(codes),
        **dict(zip(tables, places, strict=False)),
    )
    return np.concatenate([np.array(head, np.int32), *tables.values()])


def _settings(vocabulary: Vocabulary, rules: Rules) -> dict[str, int]:
    """What the head says of the rules, by its names there; 0 where a rule is off."""
    settings: dict[str, int] = {
        "num_ids": vocabulary.num_ids,
        "penalty_window": rules.penalty_window if rules.repetition_penalty != 1.0 else 0,
        "adjacency": rules.adjacency,
        "ngram": rules.ngram,
        "comma_gap": rules.comma_gap,
        "end_gap": rules.end_gap if rules.end_bias else 0,
        "since_any": rules.end_since != "sentence",
        "min_new": rules.min_new_tokens,
        "max_new": rules.max_new_tokens,
        "local_window": rules.loop_window if rules.loop_local else 0,
        "local_count": rules.loop_count,
        "loop_global": rules.loop_global,
        "loop_min": rules.loop_min_ids,
        "loop_period": rules.loop_max_period,
        "has_roles": rules.clean,
    }
    return {name: min(int(value), np.iinfo(np.int32).max) for name, value in settings.items()}


def _flags(vocabulary: Vocabulary) -> Ints:
    flags = np.frombuffer(vocabulary.has_content, np.uint8) * np.int32(HAS_CONTENT)
    flags = flags + np.frombuffer(vocabulary.is_pure_han, np.uint8) * np.int32(PURE_HAN)
    flags += vocabulary.invalid * np.int32(INVALID) + vocabulary.table.end * np.int32(ENDS)
    flags[list(vocabulary.eos)] |= EOS
    return flags.astype(np.int32)


@functools.lru_cache(maxsize=4)
def _characters(vocabulary: Vocabulary) -> tuple[Ints, Ints]:
    """(where each id's characters begin [num_ids + 1], all with their bits), but U+FFFD."""
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


def _ends_and_ids(sets: Sequence[NDArray[Any]], at: int) -> Ints:
    """Where each set begins and the last ends, for a table at `at`; behind it all their ids."""
    ends = np.cumsum([0, *map(len, sets)]) + at + len(sets) + 1
    return np.concatenate([ends, *sets]).astype(np.int32)


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
