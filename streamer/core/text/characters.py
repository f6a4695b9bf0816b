"""The class bits of a character for the rules, and small tables of characters.

"Content" is any Unicode letter or digit, Han included; "Han" is CJK content, and a "letter" is
any other one, which spells words. A word counts as WORD characters of content. Punctuation is the
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
LETTER = 32

WORD = 4  # content of a word that letters spell, as of a Chinese clause that a comma may end

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


def is_letter(character: str) -> bool:
    """A letter that spells words, such as a Latin one."""
    return character.isalpha() and not is_han(character)


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
        return CONTENT | LETTER if character.isalpha() else CONTENT
    return CONTROL if is_control(character) else 0


def trailing_run(text: str) -> int:
    """How many times the last character of `text` stands at its end; 0 for an empty text."""
    return len(text) - len(text.rstrip(text[-1])) if text else 0


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
