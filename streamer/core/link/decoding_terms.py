"""How an edge decodes, which a verifier must agree to. In: nothing. Out: a frozen dataclass."""

from __future__ import annotations

from dataclasses import dataclass

from streamer.core.decoding.verdict import VerifyRequest, prefix_hash
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules
from streamer.core.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class DecodingTerms:
    """How the edge decodes; what the verifier must agree to.

    runs_on: no draft, the verifier decodes alone. asks_first: the machine's first request is FIRST,
    so it is sent with the turn's end, while the edge is still hearing that. vocabulary: of
    `num_ids` ids, to check what the verifier chooses. phrases: a digest of those that the rules'
    form goes by, "" for none.
    """

    tokenizer: str
    language: str
    num_ids: int
    rules: Rules
    sampling: Sampling
    runs_on: bool = False
    asks_first: bool = False
    vocabulary: Vocabulary | None = None
    phrases: str = ""


FIRST = VerifyRequest(1, 0, prefix_hash(()), (), ())  # the answer's first id, without a draft
