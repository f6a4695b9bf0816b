"""The vocabulary as the rules see it: its ids' text and flags, and small tables of characters.

Built once per tokenizer (0.6 s for Qwen's 151,936 ids); after that no id is ever decoded per step.

"Content" is any Unicode letter or digit, Han included; "Han" is CJK content, and a "letter" is
any other one, which spells words. A word counts as WORD characters of content. Quotes, brackets
and dashes are neither content nor punctuation.

A byte-level vocabulary holds ids that are not valid UTF-8 alone (1,448 of Qwen's). Clean rules
never choose one: a sentence about a voice needs no character that only they can spell. Of the 3,755
commonest Chinese ones that is so of two, both of chemistry.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
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
IS_WORD = re.compile(rf"[^\W\d_{HAN}]+")
_FIRST = re.compile(f" ?{IS_WORD.pattern}")
_LAST = re.compile(rf"({IS_WORD.pattern}) ?\Z")
ENDED = re.compile(f"[{re.escape(''.join(sorted(SENTENCE_ENDS)))}]")
MARKED = re.compile(f"[{re.escape(''.join(sorted(PUNCTUATION)))}]")
HAS_CONTENT = re.compile(r"[^\W_]")  # what str.isalnum accepts
UNCLEAN = re.compile(f"[{CONTROL}]|{ENDED.pattern}.", re.DOTALL)

# Characters that Chinese doubles when it describes a voice (微微, 断断续续, 娓娓道来 ...). A small
# vocabulary spells them by single ones, so its own ids cannot show that the double is a word.
REDUPLICATED = frozenset(
    "微淡缓深轻慢渐静默细紧稍略沉平稳柔冷暖软断续悠娓侃喃滔徐匆急朗洋絮嗡沙闷懒幽隐清楚吞吐结巴呵哈嘻嘿"
    "往仅刚偏每厚浓甜暗明干净起伏拖拉怯生冲款切"
)


def is_han(text: str) -> bool:
    return IS_HAN.fullmatch(text) is not None


def is_letter(text: str) -> bool:
    return IS_WORD.fullmatch(text) is not None


def content_of(text: str) -> int:
    """Content in `text`: characters, and WORD for each word of letters."""
    rest, num_words = IS_WORD.subn("", text)
    return WORD * num_words + sum(map(str.isalnum, rest))


def first_word(text: str) -> str:
    """The word of letters that `text` begins with, in small letters, with the one space that may
    stand before it; "" where there is none."""
    found = _FIRST.match(text)
    return found[0].lower() if found else ""


def last_word(text: str) -> str:
    """The word of letters that `text` ends with, in small letters; "" where there is none."""
    found = _LAST.search(text)
    return found[1].lower() if found else ""


Ids = NDArray[np.int64]
MAX_CACHED = 512  # id sets: 0.1 MB each at most with clean rules, and one process needs some 60
_DOUBLE = re.compile(r"([^\W\d_a-zA-Z])\1")


class Vocabulary:
    """One row per logits column; rows beyond the tokenizer are padding, never emitted."""

    def __init__(
        self,
        token_bytes: Sequence[bytes],
        special: Iterable[int],
        eos: Iterable[int],
        size: int | None = None,
    ) -> None:
        """`size` is the number of logits columns, at least `len(token_bytes)`; there is an EOS."""
        self.eos = frozenset(eos)
        self.fallback = min(self.eos)  # chosen when the rules leave nothing else
        special = {*special, *self.eos}
        # of the tokenizer's content, whatever the padding: equal iff the tokenizers are
        self.fingerprint = _fingerprint(token_bytes, special, self.eos)
        self.num_ids = len(token_bytes) if size is None else size
        plain = [b"" if i in special else data for i, data in enumerate(token_bytes)]
        self._bytes = plain + [b""] * (self.num_ids - len(plain))
        # "" for special, padded and empty ids, and for those not valid UTF-8 alone
        self.texts = tuple(map(_text, self._bytes))
        # not to be emitted by clean rules; not EOS
        self.never = np.array([not text or UNCLEAN.search(text) is not None for text in self.texts])
        self.never[list(self.eos)] = False
        # Han characters whose double is a word: it stands in some id, or in REDUPLICATED
        doubles = {match[1] for match in _DOUBLE.finditer("\n".join(self.texts))}
        self.doubles = REDUPLICATED.union(filter(is_han, doubles))
        self._cache: dict[Hashable, Any] = {}

    def __repr__(self) -> str:
        return f"Vocabulary({self.num_ids} ids, {self.fingerprint})"

    def bytes_of(self, ids: Iterable[int]) -> bytes:
        """The ids' bytes, joined; special ids have none."""
        return b"".join([self._bytes[i] for i in ids])

    def text_of(self, ids: Iterable[int]) -> str:
        """The ids' text: an incomplete character is left out, U+FFFD is never shown."""
        return self.bytes_of(ids).decode(errors="ignore").replace(REPLACEMENT, "")

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result of `make`, made once per key: id sets that rules look up repeatedly. At most
        MAX_CACHED are kept. It must not be None. Threads of several models may call this."""
        found: T | None = self._cache.get(key)
        if found is None:
            found = make()
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()  # atomic: a concurrent reader makes its entry again
            self._cache[key] = found
        return found


def _fingerprint(token_bytes: Sequence[bytes], special: set[int], eos: frozenset[int]) -> str:
    """BLAKE2b over ids' lengths and bytes, special and EOS ids; empty last rows are padding."""
    num = len(token_bytes)
    while num and not token_bytes[num - 1]:
        num -= 1
    digest = hashlib.blake2b(digest_size=16)
    digest.update(np.fromiter(map(len, token_bytes[:num]), dtype="<i4", count=num).tobytes())
    digest.update(b"".join(token_bytes[:num]))
    for ids in (special, eos):
        digest.update(repr(sorted(i for i in ids if i < num)).encode())
    return digest.hexdigest()


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return ""


class Emitter:
    """One answer's text. Holds back an unfinished character's bytes; special ids have no text."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    def push(self, ids: Iterable[int]) -> str:
        """The text that `ids` complete; "" while a character is open."""
        return self._decoder.decode(self._vocabulary.bytes_of(ids)).replace(REPLACEMENT, "")
