"""Ids to text, as they commit. In: ids. Out: text deltas that never show half a character.

Streamed == whole: the deltas joined are `vocabulary.text_of` of all ids, however they were grouped.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from streamer.core.text.characters import REPLACEMENT
from streamer.core.text.vocabulary import Vocabulary

_decoder = codecs.getincrementaldecoder("utf-8")


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
