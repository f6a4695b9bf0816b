"""Characters: small tables for the rules, counts of content, and ids that split a character.

"Content" is any Unicode letter or digit, Han included; "Han" is CJK content, and a "letter" is
any other one, which spells words. A word counts as WORD characters of content. Punctuation is the
set of fix report 5 with its ASCII forms; quotes, brackets and dashes are neither content nor
punctuation.

A byte-level vocabulary holds ids that are not valid UTF-8 alone (1,448 of Qwen's). They are needed
for characters that no id spells; for all others they are only a way to garble text. `Fragments`
says which may start, or follow an open character.
"""

from __future__ import annotations

import codecs
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

COMMA_LIKE = frozenset("，、：:；;,")
SENTENCE_ENDS = frozenset("。.！？!?")
PUNCTUATION = COMMA_LIKE | SENTENCE_ENDS
REPLACEMENT = "\ufffd"
WORD = 4  # content of a word that letters spell, as of a Chinese clause that a comma may end

# Ranges of Han characters (Unicode 15, Blocks.txt).
HAN = "\u4e00-\u9fff\u3400-\u4dbf\u3007\uf900-\ufaff\U00020000-\U000323af"
# Never shown: line breaks, other control characters (a terminal obeys them), U+FFFD.
CONTROL = "\x00-\x1f\x7f-\x9f\u2028\u2029\ufffd"
IS_HAN = re.compile(f"[{HAN}]+")
ENDED = re.compile(f"[{re.escape(''.join(sorted(SENTENCE_ENDS)))}]")
MARKED = re.compile(f"[{re.escape(''.join(sorted(PUNCTUATION)))}]")
HAS_CONTENT = re.compile(r"[^\W_]")  # what str.isalnum accepts
UNCLEAN = re.compile(f"[{CONTROL}]|{ENDED.pattern}.", re.DOTALL)

# Characters that Chinese doubles when it describes a voice (微微, 断断续续, 娓娓道来 ...). A small
# vocabulary spells them from single characters, so its own ids cannot show that the double is a
# word.
REDUPLICATED = frozenset(
    "微淡缓深轻慢渐静默细紧稍略沉平稳柔冷暖软断续悠娓侃喃滔徐匆急朗洋絮嗡沙闷懒幽隐清楚吞吐结巴呵哈嘻嘿"
    "往仅刚偏每厚浓甜暗明干净起伏拖拉怯生冲款切"
)


@functools.lru_cache(maxsize=1 << 16)
def is_han(character: str) -> bool:
    """A Han character: what the fix reports call Chinese content."""
    return IS_HAN.fullmatch(character) is not None


def is_letter(character: str) -> bool:
    """A letter that spells words, such as a Latin one."""
    return character.isalpha() and not is_han(character)


def is_clean(text: str, tail: bytes = b"") -> bool:
    """No control character, and nothing after a sentence end. tail: an open character after it."""
    return not UNCLEAN.search(text + "-" if tail else text)


def content_since(text: str, marks: frozenset[str], enough: int) -> int:
    """Content after the last of `marks` in `text`: characters, and WORD for each word of letters;
    counted up to `enough` at least."""
    count = 0
    for at in range(len(text) - 1, -1, -1):
        character = text[at]
        if count >= enough or character in marks:
            break
        if is_letter(character):
            count += 0 if at and is_letter(text[at - 1]) else WORD
        else:
            count += character.isalnum()
    return count


def first_word(text: str) -> str:
    """The word of letters that `text` begins with, in small letters, with the one space that may
    stand before it; "" where there is none."""
    at = len(text) - len(text.removeprefix(" "))
    end = at
    while end < len(text) and is_letter(text[end]):
        end += 1
    return text[:end].lower() if end > at else ""


def last_word(text: str) -> str:
    """The word of letters that `text` ends with, in small letters; "" where there is none."""
    text = text.removesuffix(" ")
    at = len(text)
    while at and is_letter(text[at - 1]):
        at -= 1
    return text[at:].lower()


_decoder = codecs.getincrementaldecoder("utf-8")
# end of the last Han block; beyond are tags, private use and nothing at all (Unicode 15)
LAST_TEXT = 0x323AF
LAST_FIRST = 0xF0  # first byte of a character up to there


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
        first = pending[0]
        missing = (2 if first < 0xE0 else 3 if first < 0xF0 else 4) - len(pending)
        for lead, fragments in self.following.items() if first <= LAST_FIRST else ():
            if len(lead) < missing:  # goes on with the character: bytes alone, towards one
                bare = [f.id for f in fragments if not f.body and not f.tail]
                yield from ((i, "") for i in bare if self.opens(pending + lead))
            elif len(lead) == missing and self._is_worth(
                character := (pending + lead).decode(errors="ignore")
            ):
                for f in fragments:
                    ends = not f.tail or (not closing and self.opens(f.tail))
                    if ends and is_clean(character + f.body, f.tail):
                        yield f.id, character + f.body

    def _is_worth(self, character: str) -> bool:
        """Whether fragments may spell it; "" is no character."""
        is_text = len(character) == 1 and character.isprintable() and character != REPLACEMENT
        return is_text and ord(character) <= LAST_TEXT and character not in self.spelled


def take_apart(token_id: int, data: bytes) -> Fragment | None:
    """`data` as a fragment, or None when no neighbours make it valid UTF-8."""
    num_lead = 0
    while num_lead < len(data) and 0x80 <= data[num_lead] < 0xC0:
        num_lead += 1
    split = split_tail(data[num_lead:])
    if num_lead > 3 or split is None:
        return None
    return Fragment(token_id, data[:num_lead], *split)
