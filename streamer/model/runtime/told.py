"""How far loading is. In: parts done, parts there are. Out: whatever the caller makes of it."""

from __future__ import annotations

from collections.abc import Callable

Told = Callable[[int, int], None]  # (parts done, parts there are)


def quiet(done: int, total: int) -> None:
    """Nobody wants to be told."""
