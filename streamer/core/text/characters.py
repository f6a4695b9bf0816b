"""Small tables of characters for the rules, and counts of content.

"Content" is any Unicode letter or digit, Han included; "Han" is CJK content, and a "letter" is
any other one, which spells words. A word counts as WORD characters of content. Punctuation is the
set of fix report 5 with its ASCII forms; quotes, brackets and dashes are neither content nor
punctuation.
"""

from __future__ import annotations

import functools
import re

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
