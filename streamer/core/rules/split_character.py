"""The rules while a split character is open. In: text and open bytes. Out: the few ids that may
follow.

Rare: only for characters that no id spells. Each of these ids is judged by the text it completes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamer.core.rules.candidate import breaks
from streamer.core.rules.id_sets import Ids
from streamer.core.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from streamer.core.rules.constrain import Rules


class ByText(NamedTuple):
    """What the rules on characters say: the fields of `Constraint` that have these names."""

    only: Ids | None
    never: Ids
    commas: Ids
    adjacency: Ids
    lowered: Ids


def constrain_open(
    vocabulary: Vocabulary, rules: Rules, text: str, pending: bytes, index: int
) -> ByText:
    """The rules behind `text` and the bytes `pending` of an open character."""
    allowed = vocabulary.fragments.allowed(pending)
    broken = [(i, breaks(vocabulary, rules, text, piece, index)) for i, piece in allowed]

    def those(kind: str) -> Ids:
        return np.array([i for i, kinds in broken if kind in kinds], dtype=np.int64)

    only = np.array([i for i, _ in allowed], dtype=np.int64)
    return ByText(only, those("early"), those("commas"), those("adjacency"), those("lowered"))
