"""The speculative rule. In: draft ids, the target's own choices. Out: how many are accepted.

With Gumbel-max chance (core/rules/sampling.py) the target's choice at an answer index is one id,
greedy or sampled, so "accept while equal" is lossless: Leviathan et al. 2023 (arXiv 2211.17192)
with a deterministic target.
"""

from __future__ import annotations

from collections.abc import Sequence as Ids


def accept(draft: Ids[int], chosen: Ids[int]) -> tuple[int, int]:
    """Return (n_accepted, next_id) for `draft` of length k against the target's `chosen` of length
    k + 1.

    `next_id` is the correction after the first mismatch, or the bonus token after a clean block.
    Raises ValueError when the lengths do not fit.
    """
    if len(chosen) != len(draft) + 1:
        raise ValueError(
            f"{len(draft)} draft ids need {len(draft) + 1} target choices, got {len(chosen)}"
        )
    n = 0
    while n < len(draft) and draft[n] == chosen[n]:
        n += 1
    return n, chosen[n]
