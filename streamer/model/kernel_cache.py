"""Compiled kernels on disk: a full disk or a damaged file costs time, and nothing else.

numba raises whatever goes wrong while it keeps a function that it has compiled, or reads one back.
The function itself is healthy then, or can be compiled again.
"""

from __future__ import annotations

import functools
import warnings
from contextlib import suppress
from typing import Any

from numba.core.caching import Cache


class CacheWarning(UserWarning):
    """Kernels cannot be kept: one line that says why and what to do."""


class KernelCache:
    """`why_lost`: why what was compiled could not be kept; None where it was."""

    def __init__(self) -> None:
        self.why_lost: str | None = None
        self._save = Cache.save_overload
        self._load = Cache.load_overload

    def install(self) -> None:
        """For every function that numba keeps in this process."""
        Cache.save_overload = lambda cache, *what: self._saved(cache, *what)
        Cache.load_overload = lambda cache, *what: self._loaded(cache, *what)

    def _saved(self, cache: Any, *what: Any) -> None:
        try:
            self._save(cache, *what)
        except OSError as error:
            if self.why_lost is None:
                self.why_lost = error.strerror or str(error)
                told = (
                    f"compiled kernels cannot be kept in {cache.cache_path} ({self.why_lost}), so "
                    "every start compiles; make room, or set NUMBA_CACHE_DIR to a directory that "
                    "has some"
                )
                warnings.warn(told, CacheWarning, stacklevel=2)

    def _loaded(self, cache: Any, *what: Any) -> Any:
        try:
            return self._load(cache, *what)
        except Exception:  # half a file: unpickling it may raise anything
            with suppress(OSError):
                cache.flush()  # an index that cannot be read cannot be added to
            return None


@functools.cache
def kernel_cache() -> KernelCache:
    """This process's; installed when it is first asked for."""
    found = KernelCache()
    found.install()
    return found
