"""Ids that split a character. In: every id's bytes. Out: which may start, or follow an open one.

A byte-level vocabulary holds ids that are not valid UTF-8 alone (1,448 of Qwen's). They are needed
for characters that no id spells; for all others they are only a way to garble text.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, field

from streamer.core.text.characters import REPLACEMENT, is_clean

_decoder = codecs.getincrementaldecoder("utf-8")
# end of the last Han block; beyond are tags, private use and nothing at all (Unicode 15)
LAST_TEXT = 0x323AF
# the first code point with this number of bytes: a lower one is not valid UTF-8
SHORTEST = {2: 0x80, 3: 0x800, 4: 0x10000}


def split_tail(data: bytes) -> tuple[str, bytes] | None:
    """(text, incomplete last character) of `data`; None where nothing makes it valid UTF-8."""
    decoder = _decoder("strict")
    try:
        text = decoder.decode(data)
    except UnicodeDecodeError:
        return None
    return text, decoder.getstate()[0]


@dataclass(frozen=True, slots=True)
class Fragment:
    """`id` is `lead`, continuation bytes of an open character, then `body`, then an open `tail`."""

    id: int
    lead: bytes
    body: str
    tail: bytes


@dataclass(frozen=True, eq=False)
class Fragments:
    """The fragments of one vocabulary and the characters that some whole id spells."""

    spelled: frozenset[str]
    following: dict[bytes, list[Fragment]]  # by their leading continuation bytes
    _allowed: dict[bytes, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    _useful: dict[bytes, bool] = field(default_factory=dict)

    def allowed(self, pending: bytes) -> tuple[tuple[int, str], ...]:
        """The (id, text it completes) that may follow the open character `pending`, by id."""
        if pending not in self._allowed:
            self._allowed[pending] = tuple(sorted(self._continuations(pending)))
        return self._allowed[pending]

    def opens(self, tail: bytes) -> bool:
        """Whether `tail` may be left open: only others complete it, to a character worth having."""
        if not tail:
            return True
        if tail not in self._useful:
            self._useful[tail] = next(self._continuations(tail, closing=True), None) is not None
        return self._useful[tail]

    def _continuations(self, pending: bytes, closing: bool = False) -> Iterator[tuple[int, str]]:
        """(id, text) that may follow `pending`; closing: without ids that open a further one."""
        missing = _num_bytes(pending[0]) - len(pending)
        if _code(pending) << (6 * missing) > LAST_TEXT:
            return
        for lead, fragments in self.following.items():
            # goes on with the character: bytes alone, towards one worth having
            if len(lead) < missing:
                bare = [f.id for f in fragments if not f.body and not f.tail]
                yield from ((i, "") for i in bare if self.opens(pending + lead))
            elif len(lead) == missing and (character := self._worth(pending + lead)):
                for f in fragments:
                    ends = not f.tail or (not closing and self.opens(f.tail))
                    if ends and is_clean(character + f.body, f.tail):
                        yield f.id, character + f.body

    def _worth(self, data: bytes) -> str:
        """The character that `data` spells if fragments may spell it, else ""."""
        code = _code(data)
        if not SHORTEST[len(data)] <= code <= LAST_TEXT:
            return ""
        character = chr(code)  # a surrogate is not printable
        is_text = character.isprintable() and character != REPLACEMENT
        return character if is_text and character not in self.spelled else ""


def _num_bytes(first: int) -> int:
    """How many bytes a UTF-8 character has that starts with the byte `first`, 0xC2 to 0xF4."""
    return 2 if first < 0xE0 else 3 if first < 0xF0 else 4


def _code(data: bytes) -> int:
    """The bits that the leading bytes `data` of a UTF-8 character carry."""
    code = data[0] & (0x7F >> _num_bytes(data[0]))
    for byte in data[1:]:
        code = code << 6 | byte & 0x3F
    return code


def take_apart(token_id: int, data: bytes) -> Fragment | None:
    """`data` as a fragment, or None when no neighbours make it valid UTF-8."""
    num_lead = 0
    while num_lead < len(data) and 0x80 <= data[num_lead] < 0xC0:
        num_lead += 1
    split = split_tail(data[num_lead:])
    if num_lead > 3 or split is None:
        return None
    return Fragment(token_id, data[:num_lead], *split)
