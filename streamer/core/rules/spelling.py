"""What a vocabulary can spell. In: texts. Out: yes or no, remembered."""

from __future__ import annotations

from streamer.core.text.vocabulary import Vocabulary


class Spelling:
    """Whether ids can be found whose texts are together just the text that is asked for."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._texts = frozenset(filter(None, vocabulary.texts))
        self._lengths = range(1, 1 + max(map(len, self._texts), default=0))
        self._known: dict[str, bool] = {"": True}

    def __call__(self, text: str) -> bool:
        known = self._known.get(text)
        if known is None:
            known = any(
                text[:n] in self._texts and self(text[n:]) for n in self._lengths if n <= len(text)
            )
            self._known[text] = known
        return known
