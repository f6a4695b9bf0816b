"""How well a sentence is formed. In: its ids (or text). Out: the measures of fix report 5.

Its targets: punctuation density 0.10-0.25 in 95 % of sentences and never above 0.40, no adjacent
repeats outside the table, one sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import groupby

from streamer.core.text.vocabulary import (
    PUNCTUATION,
    REDUPLICATED,
    SENTENCE_ENDS,
    Vocabulary,
    is_han,
)


@dataclass(frozen=True)
class Quality:
    """One sentence. Repeats count the occurrences beyond the first, punctuation left out."""

    density: float  # punctuation per character
    repeated_bigrams: int  # of content characters
    repeated_trigrams: int
    # Han characters that stand twice outside the table of doubles, or three times
    adjacent_repeats: int
    one_sentence: bool  # exactly one sentence end, and it is the last character


def measure(vocabulary: Vocabulary, ids: Sequence[int]) -> Quality:
    """The quality of one answer, given as its ids."""
    text = vocabulary.text_of(ids)
    characters = [c for c in text if c.isalnum()]
    return Quality(
        density=sum(c in PUNCTUATION for c in text) / max(1, len(text)),
        repeated_bigrams=num_repeats(characters, 2),
        repeated_trigrams=num_repeats(characters, 3),
        adjacent_repeats=adjacent_repeats(text, vocabulary.doubles),
        one_sentence=is_one_sentence(text),
    )


def num_repeats(items: Sequence[Hashable], n: int) -> int:
    """How many n-grams of `items` had occurred before."""
    grams = Counter(tuple(items[i : i + n]) for i in range(len(items) - n + 1))
    return sum(grams.values()) - len(grams)


def adjacent_repeats(text: str, doubles: frozenset[str] = REDUPLICATED) -> int:
    """Places where a Han character follows itself, except for one double of a character in
    `doubles`."""
    runs = [(character, len(list(group))) for character, group in groupby(text)]
    return sum(n - 1 for c, n in runs if n > 1 and is_han(c) and not (n == 2 and c in doubles))


def is_one_sentence(text: str) -> bool:
    """Whether `text` has one sentence end, as its last character (spaces aside)."""
    text = text.strip()
    return sum(c in SENTENCE_ENDS for c in text) == 1 and text[-1] in SENTENCE_ENDS
