"""Check that the rules allow the ids that a verifier chose, since terminals and pages show them.

By the rules that both sides share, a verifier never chooses an escape code, a line break, a special
id, or bytes that complete an invalid character.
"""

from __future__ import annotations

from streamer.core.decoding.verdict import Verdict, VerifyRequest
from streamer.core.text.vocabulary import Vocabulary

NUM_BEFORE = 3  # ids before the last one of a split character


class RemoteFault(RuntimeError):
    """A message of the verifier cannot be: another model, a verdict that does not fit."""


class Plausible:
    """The check of one turn. vocabulary: None where the rules allow any id."""

    def __init__(self, vocabulary: Vocabulary | None) -> None:
        self._vocabulary = vocabulary
        # answer's length after a verdict -> its last ids; 176 at most
        self._last: dict[int, tuple[int, ...]] = {}
        self._length = 0  # after the last verdict

    def check(self, verdict: Verdict, request: VerifyRequest | None) -> None:
        """request: None in a run that the verifier decodes alone. Raises RemoteFault."""
        vocabulary = self._vocabulary
        if vocabulary is None:
            return
        base = self._length
        told = tuple[int, ...]()
        if request is not None:
            base = request.base
            told = (*request.unverified, *request.draft[: verdict.n_accepted])
        before = (*self._last.get(base, ()), *told)[-NUM_BEFORE:]
        if not vocabulary.may_follow(before, verdict.next_id):
            raise RemoteFault(
                f"the verifier chose id {verdict.next_id}, which the rules never allow there"
            )
        self._length = base + len(told) + 1
        self._last[self._length] = (*before, verdict.next_id)[-NUM_BEFORE:]
