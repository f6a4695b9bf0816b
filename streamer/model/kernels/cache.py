"""Keeps compiled kernels on disk, in a directory that only the user can write.

numba unpickles the files of its cache: another user who can write them runs code. So kernels lie
in `$NUMBA_CACHE_DIR/streamer` or `$XDG_CACHE_HOME/streamer/kernels` (`~/.cache`), with mode 700,
and are used only where no other user could have put or changed a file. A full disk or a damaged
file costs time and one line: the function itself is healthy, or can be compiled again.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import stat
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, InTreeCacheLocator

KEPT_VERSIONS = 8  # directories of other versions of the sources; older ones are removed
MOST_LINKS = 40  # as Linux has it
_KERNELS = Path(__file__).parent


class CacheWarning(UserWarning):
    """Kernels cannot be kept: one line with the cause and the way out."""


class KernelCache(FunctionCache):
    """numba's cache of one function, which survives a full disk and damaged files. why_lost: why a
    kernel of this process could not be kept; None where all were."""

    why_lost: str | None = None

    def __init__(self, function: Any, directory: Path) -> None:
        self._impl_class = lambda function: _Place(function, directory)
        super().__init__(function)

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            if KernelCache.why_lost is None:
                KernelCache.why_lost = error.strerror or str(error)
                _warn(f"{self.cache_path} ({KernelCache.why_lost})", "make room")

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # half a file: unpickling it may raise anything
            with suppress(OSError):
                self.flush()  # an index that cannot be read cannot be added to
            return None


class _Place(CompileResultCacheImpl):
    """Names the files of one function. numba would look for a directory by its own rules."""

    def __init__(self, function: Any, directory: Path) -> None:
        self._lineno = function.__code__.co_firstlineno
        self._locator = _Locator(function, directory)
        name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        self._filename_base = self.get_filename_base(name, "")


class _Locator(InTreeCacheLocator):
    def __init__(self, function: Any, directory: Path) -> None:
        super().__init__(function, function.__code__.co_filename)
        self._cache_path = str(directory)


def keep(dispatcher: Any) -> Any:
    """Lets numba's compiled function `dispatcher` be kept on disk, where a directory is safe."""
    function = getattr(dispatcher, "py_func", None)  # NUMBA_DISABLE_JIT leaves none
    if function is not None:
        directory = kernel_directory(Path(function.__code__.co_filename).parent)
        if directory is not None:
            dispatcher._cache = KernelCache(function, directory)
    return dispatcher


def why_not_compiled() -> str | None:
    """Why numba compiles nothing in this process, with the way out; None where it does."""
    if numba.config.DISABLE_JIT:
        return "NUMBA_DISABLE_JIT is set, and the kernels run compiled only; unset it"
    return None


@functools.cache
def kernel_directory(sources: Path) -> Path | None:
    """The directory for kernels whose code lies in the folder `sources`, made where it is missing.

    None where no directory is safe; CacheWarning says why.
    """
    name = f"{sys.modules['streamer'].__version__}-{_digest(sources)}"
    for base in _bases():
        directory = base / name
        if (why := _why_not(directory)) is None:
            return directory
        _warn(f"{base} ({why})", "make it yours alone")
    return None


def _bases() -> Iterator[Path]:
    """Where to look, best first. A relative path would lead into the working directory."""
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        if os.path.isabs(chosen):
            yield Path(chosen) / "streamer"
        else:
            _warn(f"NUMBA_CACHE_DIR={chosen} (a relative path)", "give an absolute one")
    cache = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(cache) if os.path.isabs(cache) else Path("~/.cache").expanduser()
    if home.is_absolute():
        yield home / "streamer" / "kernels"


def _digest(sources: Path) -> str:
    """16 characters that change with any source of a kernel. numba looks only at the file of the
    outermost function: with another file changed it would run old code on a new layout."""
    files = sorted({*_KERNELS.glob("*.py"), *sources.glob("*.py")})
    return hashlib.blake2b(b"".join(map(Path.read_bytes, files)), digest_size=8).hexdigest()


def _why_not(directory: Path) -> str | None:
    """Why kernels may not lie in `directory`; None where it is there, and safe."""
    try:
        above = next(path for path in directory.parents if os.path.lexists(path))
        if (why := _why_unsafe(above, is_above=True)) is not None:
            return why
        is_new = not directory.exists()
        for path in reversed((directory, *directory.parents)):
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
        if (why := _why_unsafe(directory) or _why_unsafe_inside(directory)) is not None:
            return why
        if is_new:
            _remove_old(directory.parent)
    except OSError as error:
        return error.strerror or str(error)
    return None


def _why_unsafe(path: Path, is_above: bool = False) -> str | None:
    """Which directory or link on the way to `path` lets another user change what lies there.
    is_above: the directory for kernels is still to be made in `path`."""
    for step in _steps(path):
        found = step.lstat()
        may_be_shared = is_above or step != path
        if found.st_uid not in (0, os.geteuid()):
            return f"{step} belongs to another user"
        if stat.S_ISLNK(found.st_mode) or (found.st_mode & stat.S_ISVTX and may_be_shared):
            continue  # the sticky bit keeps users from replacing each other's files
        if not stat.S_ISDIR(found.st_mode):
            return f"{step} is no directory"
        # a group of the user alone, as many systems make it, may write above the directory
        is_own_group = found.st_gid == os.getegid() == os.geteuid() and may_be_shared
        if found.st_mode & (stat.S_IWOTH if is_own_group else stat.S_IWOTH | stat.S_IWGRP):
            return f"{step} can be written by others"
    return None


def _steps(path: Path) -> Iterator[Path]:
    """Every directory and every link from the root to `path`. Raises OSError."""
    at = Path("/")
    yield at
    names = list(path.parts[:0:-1])
    num_links = 0
    while names:
        name = names.pop()
        if name == "..":
            at = at.parent
            continue
        yield at / name
        if not (at / name).is_symlink():
            at = at / name
            continue
        num_links += 1
        if num_links > MOST_LINKS:
            raise OSError(f"too many links in {path}")
        target = Path(os.readlink(at / name))
        at = Path("/") if target.is_absolute() else at
        names += target.parts[: 0 if target.is_absolute() else None : -1]


def _why_unsafe_inside(directory: Path) -> str | None:
    """Which file of `directory` another user may have written."""
    is_open = directory.stat().st_mode & 0o077
    for path in directory.iterdir():
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            return f"{path} is no regular file"
        if found.st_uid not in (0, os.geteuid()):
            return f"{path} belongs to another user"
        if is_open and found.st_mode & (stat.S_IWOTH | stat.S_IWGRP):
            return f"{path} can be written by others"
    return None


def _remove_old(base: Path) -> None:
    """Removes the kernels of all but the newest versions of the sources."""
    with suppress(OSError):
        versions = sorted(base.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for version in versions[KEPT_VERSIONS:]:
            shutil.rmtree(version, ignore_errors=True)


@functools.cache  # each line once
def _warn(place: str, way_out: str) -> None:
    told = f"compiled kernels are not kept in {place}; {way_out}, or set NUMBA_CACHE_DIR"
    warnings.warn(f"{told} to a directory of your own", CacheWarning, stacklevel=2)
