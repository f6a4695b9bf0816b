"""What `Describer.open(...)` gives: an async context, and one clear line to who forgets that."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

Given = ParamSpec("Given")
T = TypeVar("T")
WAY = "it is not open yet; write `async with Describer.open(...) as d:` and use d inside"


class Opening(AbstractAsyncContextManager[T]):
    """Open with `async with`, once."""

    def __init__(self, context: AbstractAsyncContextManager[T]) -> None:
        self._context = context

    async def __aenter__(self) -> T:
        return await self._context.__aenter__()

    async def __aexit__(self, *raised: Any) -> bool | None:
        return await self._context.__aexit__(*raised)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"Describer.open(...) has no {name}: {WAY}")

    def __await__(self) -> Generator[Any, None, NoReturn]:
        raise TypeError(f"Describer.open(...) cannot be awaited: {WAY}")

    def __enter__(self) -> NoReturn:
        raise TypeError(f"Describer.open(...) needs `async`: {WAY}")

    def __exit__(self, *_: object) -> None:
        """Only so that `with` comes to the line above."""


def opened_by(
    function: Callable[Given, AbstractAsyncContextManager[T]],
) -> Callable[Given, Opening[T]]:
    """A decorator, above that of the context."""

    @wraps(function)
    def opening(*given: Given.args, **named: Given.kwargs) -> Opening[T]:
        return Opening(function(*given, **named))

    return opening
