"""The vocabulary as the rules see it. In: ids' bytes, special and EOS ids. Out: text, flags, mask.

Built once per tokenizer (0.6 s for Qwen's 151,936 ids); after that no id is ever decoded per step.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.core.text.characters import (
    ENDED,
    HAS_CONTENT,
    IS_HAN,
    REDUPLICATED,
    REPLACEMENT,
    Fragment,
    Fragments,
    is_clean,
    is_han,
    take_apart,
)

Ids = NDArray[np.int64]
MAX_CACHED = 512  # id sets: 0.1 MB each at most with clean rules, and one process needs some 60
_decoder = codecs.getincrementaldecoder("utf-8")
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
        """`size` is the number of logits columns, at least `len(token_bytes)`.

        Raises ValueError when `size` is too small, an id is out of range or there is no EOS id.
        """
        num_ids = len(token_bytes) if size is None else size
        ends = frozenset(eos)
        specials = set(special)
        if num_ids < len(token_bytes):
            raise ValueError(f"{num_ids} logits columns cannot hold {len(token_bytes)} ids")
        if not ends or not all(0 <= i < len(token_bytes) for i in ends | specials):
            raise ValueError(
                f"needs an EOS id, and EOS and special ids in 0..{len(token_bytes) - 1}"
            )
        return _build(list(token_bytes), specials | ends, ends, num_ids)

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

    def finish(self) -> str:
        """Nothing: half a character is dropped. Ready for the next answer."""
        rest = self._decoder.decode(b"", final=True).replace(REPLACEMENT, "")
        self._decoder.reset()
        return rest
