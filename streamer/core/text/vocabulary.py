"""The vocabulary as the rules see it: its ids' text and flags, small tables of characters, and ids
that split a character.

Built once per tokenizer (0.6 s for Qwen's 151,936 ids); after that no id is ever decoded per step.

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
import hashlib
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


Ids = NDArray[np.int64]
MAX_CACHED = 512  # id sets: 0.1 MB each at most with clean rules, and one process needs some 60
_DOUBLE = re.compile(r"([^\W\d_a-zA-Z])\1")


@dataclass(frozen=True, eq=False, repr=False)
class Vocabulary:
    """One row per logits column; rows beyond the tokenizer are padding, never emitted."""

    num_ids: int
    eos: frozenset[int]
    # [num_ids]: not to be emitted, except after an open split character; not EOS
    never: NDArray[np.bool_]
    invalid: NDArray[np.bool_]  # [num_ids]: not valid UTF-8 alone
    ends: bytes  # [num_ids] 0/1: holds a sentence end
    # [num_ids]: "" for special, padded and empty ids, None for those not valid UTF-8 alone
    texts: tuple[str | None, ...]
    # [num_ids]: the same; of an id that opens a character the characters before it
    bodies: tuple[str, ...]
    # Han characters whose double is a word: it stands in some id, or in REDUPLICATED
    doubles: frozenset[str]
    fragments: Fragments
    # of the tokenizer's content, whatever the padding: equal iff the tokenizers are
    fingerprint: str
    # [num_ids] 0/1: any letter or digit; a fragment's open character does not count
    has_content: bytes
    is_pure_han: bytes  # [num_ids] 0/1
    _bytes: tuple[bytes, ...]
    _cache: dict[Hashable, Any] = field(default_factory=dict)

    @classmethod
    def build(
        cls,
        token_bytes: Sequence[bytes],
        special: Iterable[int],
        eos: Iterable[int],
        size: int | None = None,
    ) -> Vocabulary:
        """`size` is the number of logits columns, at least `len(token_bytes)`; there is an EOS."""
        num_ids = len(token_bytes) if size is None else size
        ends = frozenset(eos)
        return _build(list(token_bytes), {*special, *ends}, ends, num_ids)

    def __repr__(self) -> str:
        return f"Vocabulary({self.num_ids} ids, {self.fingerprint})"

    @cached_property
    def fallback(self) -> int:
        """The EOS id that is chosen when the rules leave nothing else."""
        return min(self.eos)

    @cached_property
    def may_end(self) -> bytes:
        """[num_ids] 0/1: an answer may end with it: EOS, sentence ends, pieces of characters."""
        may_end = self.invalid | np.frombuffer(self.ends, bool)
        may_end[list(self.eos)] = True
        return may_end.astype(np.uint8).tobytes()

    def bytes_of(self, ids: Iterable[int]) -> bytes:
        """The ids' bytes, joined; special ids have none."""
        return b"".join([self._bytes[i] for i in ids])

    def text_of(self, ids: Iterable[int]) -> str:
        """The ids' text: an incomplete character is left out, U+FFFD is never shown."""
        return self.read(ids)[0]

    def read(self, ids: Iterable[int]) -> tuple[str, bytes]:
        """(text, bytes of a split character that is still open at its end)."""
        ids = list(ids)
        texts = [self.texts[i] for i in ids]
        if None not in texts:
            return "".join(texts).replace(REPLACEMENT, ""), b""  # type: ignore[arg-type]
        decoder = _decoder("ignore")
        text = decoder.decode(self.bytes_of(ids))
        return text.replace(REPLACEMENT, ""), decoder.getstate()[0]

    def piece(self, answer: Sequence[int], candidate: int) -> str:
        """The text that `candidate` adds to `answer`."""
        text = self.texts[candidate]
        if text is not None:
            return text
        last = list(answer[-4:])  # an open character has at most three ids before its last
        return self.text_of([*last, candidate])[len(self.text_of(last)) :]

    def may_follow(self, last: Sequence[int], candidate: int) -> bool:
        """Whether clean rules may ever choose `candidate` after ids that end with `last`."""
        _, pending = self.read(last)
        if not pending:
            return not self.never[candidate]
        return candidate in self.eos or any(
            i == candidate for i, _ in self.fragments.allowed(pending)
        )

    def cached(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The result of `make`, made once per key: id sets that rules look up repeatedly. At most
        MAX_CACHED are kept. It must not be None. Threads of several models may call this."""
        found = self._cache.get(key)
        if found is None:
            found = make()
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()  # atomic: a concurrent reader makes its entry again
            self._cache[key] = found
        return found


def _build(
    token_bytes: list[bytes], special: set[int], eos: frozenset[int], num_ids: int
) -> Vocabulary:
    fingerprint = _fingerprint(token_bytes, special, eos)
    plain = [b"" if i in special else data for i, data in enumerate(token_bytes)]
    plain += [b""] * (num_ids - len(plain))
    texts = [_text(data) for data in plain]
    apart = {i: take_apart(i, plain[i]) for i, text in enumerate(texts) if text is None}
    # A fragment that goes on with a character counts as nothing.
    bodies = [text if text is not None else _body(apart[i]) for i, text in enumerate(texts)]
    fragments = _fragments(texts, apart.values())
    never = [not text or not is_clean(text) for text in texts]
    for i, fragment in apart.items():
        never[i] = not _may_start(fragment, fragments)
    for i in eos:
        never[i] = False
    return Vocabulary(
        num_ids=num_ids,
        eos=eos,
        never=np.array(never),
        invalid=np.array([text is None for text in texts]),
        ends=bytes(ENDED.search(body) is not None for body in bodies),
        texts=tuple(texts),
        bodies=tuple(bodies),
        doubles=_doubles(bodies),
        fragments=fragments,
        fingerprint=fingerprint,
        has_content=bytes(HAS_CONTENT.search(body) is not None for body in bodies),
        is_pure_han=bytes(IS_HAN.fullmatch(text or "") is not None for text in texts),
        _bytes=tuple(plain),
    )


def _fingerprint(token_bytes: list[bytes], special: set[int], eos: frozenset[int]) -> str:
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


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _body(fragment: Fragment | None) -> str:
    return fragment.body if fragment is not None and not fragment.lead else ""


def _fragments(texts: list[str | None], apart: Iterable[Fragment | None]) -> Fragments:
    following: dict[bytes, list[Fragment]] = {}
    for fragment in apart:
        if fragment is not None and fragment.lead:
            following.setdefault(fragment.lead, []).append(fragment)
    return Fragments(frozenset(t for t in texts if t is not None and len(t) == 1), following)


def _may_start(fragment: Fragment | None, fragments: Fragments) -> bool:
    """Whether a fragment may stand where no character is open."""
    if fragment is None or fragment.lead:
        return False
    return is_clean(fragment.body, fragment.tail) and fragments.opens(fragment.tail)


def _doubles(texts: Sequence[str]) -> frozenset[str]:
    """Han characters that some id holds twice in a row (183 of Qwen's), and the table's."""
    found = {match[1] for match in _DOUBLE.finditer("\n".join(texts))}
    return frozenset(c for c in found if is_han(c)) | REDUPLICATED


class Emitter:
    """One answer's text. Holds back an unfinished character's bytes; special ids have no text."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = _decoder("ignore")

    def push(self, ids: Iterable[int]) -> str:
        """The text that `ids` complete; "" while a character is open."""
        return self._decoder.decode(self._vocabulary.bytes_of(ids)).replace(REPLACEMENT, "")
