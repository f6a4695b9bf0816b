"""One stream's ids on one model, and how many are in its KV slot: the one owner of length.

In: ids (prompt | audio | suffix | answer). Out: what a step must feed, `ids[n_cached:]`, each id
once. Fix reports 2, 4 and 5 are all cases of two places that each kept a length of their own.
"""

from __future__ import annotations

from collections.abc import Iterable


class Sequence:
    """`ids`, `n_cached` (in the KV slot), `answer_start` and `n_committed` (shown of the answer).

    `n_cached <= len(ids) - 1` holds from `start_answer` on: the last id's logits are always still
    to come. While audio arrives, before `start_answer`, all ids may be cached. Rollback sets
    integers: what lies past `n_cached` in the slot is garbage that the next step overwrites.
    """

    __slots__ = ("_answer_start", "_ids", "_n_cached", "_n_committed")

    def __init__(self, prompt: Iterable[int] = (), n_cached: int = 0) -> None:
        self._ids = list(prompt)
        self._answer_start: int | None = None
        self._n_committed = 0
        if not 0 <= n_cached <= len(self._ids):
            raise ValueError(f"n_cached {n_cached} is outside 0..{len(self._ids)}")
        self._n_cached = n_cached

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> tuple[int, ...]:
        """All ids, as a copy: only `replace_tail` shortens them."""
        return tuple(self._ids)

    @property
    def n_cached(self) -> int:
        return self._n_cached

    @property
    def n_committed(self) -> int:
        return self._n_committed

    @property
    def answer_start(self) -> int:
        """Position of the answer's first id. Raises RuntimeError before `start_answer`."""
        if self._answer_start is None:
            raise RuntimeError("the answer has not started: call start_answer first")
        return self._answer_start

    @property
    def answer(self) -> list[int]:
        """The answer's ids so far: committed, then drafted."""
        return self._ids[self._answer_start or self.answer_start :]

    @property
    def pending(self) -> list[int]:
        """The ids the next step feeds, from position `n_cached` on."""
        return self._ids[self._n_cached :]

    def extend(self, ids: Iterable[int]) -> None:
        """Append ids that no step has fed yet."""
        self._ids.extend(ids)

    def replace_tail(self, n: int, new_ids: Iterable[int] = ()) -> None:
        """Cut to `n` ids and append `new_ids`, atomically; O(1) in the cache.

        Raises ValueError where it would take back a committed id: committed text stays.
        """
        floor = 0 if self._answer_start is None else self._answer_start + self._n_committed
        if not floor <= n <= len(self._ids):
            raise ValueError(f"cannot cut {len(self._ids)} ids to {n}: {floor} are kept for good")
        self._ids[n:] = new_ids
        held_back = 0 if self._answer_start is None else 1
        self._n_cached = min(self._n_cached, n, max(0, len(self._ids) - held_back))

    def mark_fed(self, n: int) -> None:
        """Record that a step has fed the `n` ids that stood at `n_cached`."""
        num_pending = len(self._ids) - self._n_cached
        if not 0 <= n <= num_pending:
            raise ValueError(f"cannot mark {n} ids fed: {num_pending} are pending")
        self._n_cached += n

    def start_answer(self) -> None:
        """The answer begins here. One id at least stays pending for its logits."""
        if not self._ids:
            raise ValueError("an answer needs at least one id before it")
        self._answer_start = len(self._ids)
        self._n_committed = 0
        self._n_cached = min(self._n_cached, len(self._ids) - 1)

    def commit(self, n: int) -> None:
        """The next `n` ids of the answer are shown: they can no longer be cut."""
        if not 0 <= n <= len(self._ids) - self.answer_start - self._n_committed:
            raise ValueError(f"cannot commit {n} ids beyond the answer's end")
        self._n_committed += n
