"""Every id's characters, counted once. In: the text of each id. Out: arrays [num_ids].

All ids are laid end to end as one array of code points, so that 152,000 of them take array
operations and not a loop: nothing is decoded per id per step (docs/decoding.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.core.text.characters import (
    COMMA,
    CONTENT,
    CONTROL,
    END,
    HAN,
    LETTER,
    WORD,
    character_class,
    is_han,
)

FAR = 1 << 20  # "no such place in this id": larger than any gap a rule asks for


@dataclass(frozen=True, eq=False)
class Table:
    """One row per id; flags are `bool [num_ids]`.

    Counts are content, `int32 [num_ids]`: characters, and WORD for each word of letters.
    """

    content: NDArray[np.int32]
    # before the first punctuation inside (all of them where there is none)
    before: NDArray[np.int32]
    starts_word: NDArray[np.bool_]  # its first character is a letter, which may go on with a word
    first: NDArray[np.int32]  # code point of the first character, -1 where there is none
    # how often the first character stands at the start, 0 where it is not Han
    leading_run: NDArray[np.int32]
    longest_han_run: NDArray[np.int32]  # of one Han character, anywhere inside
    pure_han: NDArray[np.bool_]  # at least one character, all of them Han
    control: NDArray[np.bool_]  # holds a line break, another control character or U+FFFD
    comma: NDArray[np.bool_]  # holds a comma-like character
    comma_first: NDArray[np.bool_]  # its first punctuation is comma-like
    # least content from a punctuation inside to a comma after it, or FAR
    comma_inner: NDArray[np.int32]
    end: NDArray[np.bool_]  # holds a sentence end
    end_first: NDArray[np.bool_]  # its first punctuation is a sentence end
    end_before: NDArray[np.int32]  # before the first sentence end inside, or FAR
    # from the last punctuation before that end (or the id's start), or FAR
    end_inner: NDArray[np.int32]
    after_end: NDArray[np.int32]  # characters of any kind after the first sentence end


def build_table(texts: Sequence[str]) -> Table:
    """Count the characters of every id's text; "" gives a row of zeros."""
    joined = "".join(texts)
    codes = np.frombuffer(joined.encode("utf-32-le"), dtype=np.uint32).astype(np.int32)
    length = np.fromiter(map(len, texts), dtype=np.int32, count=len(texts))
    stop = np.cumsum(length, dtype=np.int32)
    owner = np.repeat(np.arange(len(texts)), length)
    layout = _Layout(codes, _classes(joined, codes), stop - length, stop, owner)
    columns: dict[str, NDArray[Any]] = {**layout.runs(), **layout.marks()}
    return Table(**columns)


def _classes(joined: str, codes: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Class bits of every character: computed once per distinct character."""
    lookup = np.zeros(0x110000, dtype=np.uint8)
    for character in set(joined):
        lookup[ord(character)] = character_class(character)
    return lookup[codes]


@dataclass(frozen=True, eq=False)
class _Layout:
    """All ids' characters end to end: `codes`, `classes`, `owner`; `start`, `stop` per id."""

    codes: NDArray[np.int32]
    classes: NDArray[np.uint8]
    start: NDArray[np.int32]
    stop: NDArray[np.int32]
    owner: NDArray[np.int64]

    def _running(self, bits: int) -> NDArray[np.int32]:
        """Running count [num_characters + 1] of the characters with any of `bits`."""
        count = np.zeros(len(self.codes) + 1, dtype=np.int32)
        np.cumsum((self.classes & bits) != 0, out=count[1:])
        return count

    def _content(self) -> NDArray[np.int32]:
        """Running sum [num_characters + 1] of content."""
        is_letter = (self.classes & LETTER) != 0
        goes_on = np.zeros(len(self.codes), bool)
        goes_on[1:] = is_letter[1:] & is_letter[:-1] & (self.owner[1:] == self.owner[:-1])
        weights = np.where(is_letter, np.where(goes_on, 0, WORD), (self.classes & CONTENT) != 0)
        total = np.zeros(len(self.codes) + 1, dtype=np.int32)
        np.cumsum(weights, out=total[1:])
        return total

    def _starts(self, bits: int) -> NDArray[np.bool_]:
        """Whether each id's first character has any of `bits`."""
        found = self.stop > self.start
        found[found] = (self.classes[self.start[found]] & bits) != 0
        return found

    def _per_id(self, bits: int) -> NDArray[np.int32]:
        running = self._running(bits)
        return running[self.stop] - running[self.start]

    def _first(self, bits: int) -> NDArray[np.int64]:
        """Place of each id's first character with any of `bits`; -1 where there is none."""
        places = np.flatnonzero(self.classes & bits)[::-1]
        found = np.full(len(self.start), -1, dtype=np.int64)
        # of several places of one id the one assigned last stays
        found[self.owner[places]] = places
        return found

    def runs(self) -> dict[str, NDArray[np.int32]]:
        """First characters, and runs of one Han character, for which few ids are walked."""
        longest = np.minimum(self._per_id(HAN), 1)
        leading = np.zeros(len(self.start), dtype=np.int32)
        first = np.full(len(self.start), -1, dtype=np.int32)
        filled = self.stop > self.start
        first[filled] = self.codes[self.start[filled]]
        leading[filled] = (self.classes[self.start[filled]] & HAN) != 0
        doubled = (self.codes[1:] == self.codes[:-1]) & (self.owner[1:] == self.owner[:-1])
        for i in np.unique(self.owner[1:][doubled & ((self.classes[1:] & HAN) != 0)]):
            text = (
                self.codes[self.start[i] : self.stop[i]].astype("<u4").tobytes().decode("utf-32-le")
            )
            runs = [len(list(group)) if is_han(c) else 0 for c, group in groupby(text)]
            leading[i] = runs[0]
            longest[i] = max(runs)
        return {"first": first, "leading_run": leading, "longest_han_run": longest}

    def marks(self) -> dict[str, NDArray[Any]]:
        """Counts around the punctuation inside each id."""
        run = self._content()
        first = self._first(COMMA | END)
        punctuated = first >= 0
        comma_inner, end_from = self._inner(run)
        end_at = self._first(END)
        end = end_at >= 0
        at_first = np.where(punctuated, self.classes[first] if len(self.codes) else 0, 0)
        return {
            "starts_word": self._starts(LETTER),
            "content": run[self.stop] - run[self.start],
            "before": run[np.where(punctuated, first, self.stop)] - run[self.start],
            "pure_han": (self.stop > self.start) & (self._per_id(HAN) == self.stop - self.start),
            "control": self._per_id(CONTROL) > 0,
            "comma": self._per_id(COMMA) > 0,
            "comma_first": (at_first & COMMA) > 0,
            "comma_inner": comma_inner,
            "end": end,
            "end_first": (at_first & END) > 0,
            "end_before": np.where(end, run[end_at] - run[self.start], FAR).astype(np.int32),
            "end_inner": np.where(end, run[end_at] - run[np.where(end, end_from, 0)], FAR).astype(
                np.int32
            ),
            "after_end": np.where(end, self.stop - end_at - 1, 0).astype(np.int32),
        }

    def _inner(self, run: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Least content from punctuation to a comma after it; where the first end counts from."""
        places = np.flatnonzero(self.classes & (COMMA | END))
        owner = self.owner[places]
        # places that are not their id's first
        behind = np.flatnonzero(owner[1:] == owner[:-1]) + 1
        commas = behind[(self.classes[places[behind]] & COMMA) != 0]
        inner = np.full(len(self.start), FAR, dtype=np.int32)
        np.minimum.at(inner, owner[commas], run[places[commas]] - run[places[commas - 1]])
        since = self.start.astype(np.int64)
        ends = behind[(self.classes[places[behind]] & END) != 0]
        first_end = self._first(END)
        ends = ends[places[ends] == first_end[owner[ends]]]
        since[owner[ends]] = places[ends - 1]
        return inner, since
