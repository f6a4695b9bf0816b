"""The class bits of a character for the rules, and small tables of characters.

"Content" is any Unicode letter or digit, Han included; "Han" is CJK content. Punctuation is the
set of fix report 5 with its ASCII forms; quotes, brackets and dashes are neither content nor
punctuation.
"""

from __future__ import annotations

import functools
import unicodedata

COMMA_LIKE = frozenset("，、：:；;,")
SENTENCE_ENDS = frozenset("。.！？!?")
PUNCTUATION = COMMA_LIKE | SENTENCE_ENDS
REPLACEMENT = "\ufffd"

# bits of `character_class`
CONTENT = 1
HAN = 2
COMMA = 4
END = 8
CONTROL = 16

# First and last code point of each Han range, in the order of how often they occur (Unicode 15,
# Blocks.txt).
_HAN_RANGES = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x3007, 0x3007),
    (0xF900, 0xFAFF),
    (0x20000, 0x323AF),
)

# Characters that Chinese doubles when it describes a voice (微微, 断断续续, 娓娓道来 ...). A small
# vocabulary spells them from single characters, so its own ids cannot show that the double is a
# word.
REDUPLICATED = frozenset(
    "微淡缓深轻慢渐静默细紧稍略沉平稳柔冷暖软断续悠娓侃喃滔徐匆急朗洋絮嗡沙闷懒幽隐清楚吞吐结巴呵哈嘻嘿"
    "往仅刚偏每厚浓甜暗明干净起伏拖拉怯生冲款切"
)


def is_content(character: str) -> bool:
    """A Unicode letter or digit."""
    return character.isalnum()


@functools.lru_cache(maxsize=1 << 16)
def is_han(character: str) -> bool:
    """A Han character: what the fix reports call Chinese content."""
    code = ord(character)
    return code >= 0x3007 and any(first <= code <= last for first, last in _HAN_RANGES)


def is_control(character: str) -> bool:
    """Never shown: line breaks, other control characters (a terminal obeys them), U+FFFD."""
    return character == REPLACEMENT or unicodedata.category(character) in ("Cc", "Zl", "Zp")


def character_class(character: str) -> int:
    """The class bits of one character."""
    if character in COMMA_LIKE:
        return COMMA
    if character in SENTENCE_ENDS:
        return END
    if is_han(character):
        return HAN | CONTENT
    if is_content(character):
        return CONTENT
    return CONTROL if is_control(character) else 0


def trailing_run(text: str) -> int:
    """How many times the last character of `text` stands at its end; 0 for an empty text."""
    return len(text) - len(text.rstrip(text[-1])) if text else 0


def content_since(text: str, marks: frozenset[str], enough: int) -> int:
    """Content characters after the last of `marks` in `text`; counted up to `enough`."""
    count = 0
    for character in reversed(text):
        if count >= enough or character in marks:
            break
        count += character.isalnum()
    return count
