"""Can an id that a verifier chose be one? In: its verdicts, in order. Out: nothing, or RemoteFault.

By the same rules on both sides it chooses no escape code, line break or special id, nor bytes that
complete a character which is none: what it says is shown on terminals and pages.
"""

from __future__ import annotations

from streamer.core.decoding.verdict import Verdict, VerifyRequest
from streamer.core.text.vocabulary import Vocabulary

NUM_BEHIND = 3  # ids before the last one of a split character


class RemoteFault(RuntimeError):
    """What the verifier said cannot be: another model than before, a verdict that does not fit."""


class Plausible:
    """Of one turn. vocabulary: None where the rules are not clean, and any id may be chosen."""

    def __init__(self, vocabulary: Vocabulary | None) -> None:
        self._vocabulary = vocabulary
        # answer's length behind a verdict -> its last ids; 176 at most
        self._last: dict[int, tuple[int, ...]] = {}
        self._length = 0  # behind the last verdict

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
        behind = (*self._last.get(base, ()), *told)[-NUM_BEHIND:]
        if not vocabulary.may_follow(behind, verdict.next_id):
            raise RemoteFault(
                f"the verifier chose id {verdict.next_id}, which the rules never allow there"
            )
        self._length = base + len(told) + 1
        self._last[self._length] = (*behind, verdict.next_id)[-NUM_BEHIND:]
