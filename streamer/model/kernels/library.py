"""The compiled kernels of this machine: found on disk, or compiled there once.

`kernel` gives a function of machine code. Loading it takes LLVM alone: numba, which compiles it,
would cost a start 0.5 s of CPU time and 80 MB, so it runs in a process of its own (build.py).

Another user who can write the files runs code as this one. So they lie in
`$NUMBA_CACHE_DIR/streamer` or `$XDG_CACHE_HOME/streamer/kernels` (`~/.cache`), with mode 700, and
are used only where no other user could have put or changed them. Without such a directory the
kernels are compiled at every start, and one line says so.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

SOURCES = Path(__file__).parent
# Sizes on which compiled code and its callers agree.
PANEL = 32  # columns of a panel of weights
QUERIES = 64  # queries of one row, and positions they see, whose scores are held at a time
BLOCK = 128
NUM_CANDIDATES = (
    4  # F0s of a frame: with 3 medians agree with Praat's a little less, with 8 no more
)
MOST_COMPILING_S = 900  # another process may be compiling before this one
# Nothing is multiplied there, and with too little memory for its threads OpenBLAS loops for ever.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
CHOOSES_PROCESSOR = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")  # kernels are compiled for another one
SYMBOL = "streamer_kernel"  # the function of an object file
_FEATURES = llvm.get_host_cpu_features()
# Whether weights stay float16. Without an instruction that converts them (x86-64 before F16C) LLVM
# would call a function that this process may not have, and end the process.
KEEPS_HALVES = any(map(_FEATURES.get, ("f16c", "neon"))) and not os.environ.get("NUMBA_CPU_NAME")
TYPES = {"i8": np.int64, "i1": np.int8, "u2": np.uint16, "f4": np.float32}
_TEXT = "i8 f4 i8,2 i8 f4 {w} f4 f4,2 {w} f4,2 f4,2 f4 f4 f4 f4"
_TOWER = "f4 i8,2 i8 {w} f4 f4 f4 f4 f4 f4 f4 f4"
# Each kernel: where its function is, and its arrays' types, with their dimensions if more than one.
KERNELS = {
    "text": ("layers.run_text", _TEXT.format(w="u2")),
    "tower": ("layers.run_tower", _TOWER.format(w="u2")),
    "text of float32": ("layers.run_text", _TEXT.format(w="f4")),
    "tower of float32": ("layers.run_tower", _TOWER.format(w="f4")),
    "filter rows": ("arithmetic.filter_rows", "f4 f4 i8 f4"),
    "cut stretches": ("pitch.cut_stretches", "f4 i8 f4 f4,2 f4"),
    "find peaks": ("pitch.find_peaks", "f4,2 f4 f4 i8 f4,2"),
    "find path": ("pitch.find_path", "f4,2 i8 f4 f4,2 f4,2 i1,2 f4"),
}
_OTHERS = ("text of float32", "tower of float32") if KEEPS_HALVES else ("text", "tower")
USUAL = [name for name in KERNELS if name not in _OTHERS]  # of the shipped pair
Array = NDArray[Any]


class KernelWarning(UserWarning):
    """Kernels cannot be kept: one line with the cause and the way out."""


class KernelError(RuntimeError):
    """A kernel cannot be compiled: one line that says why."""


# Called before kernels are compiled, which takes seconds; the argument: they are kept on disk.
on_compiling: list[Callable[[bool], None]] = [lambda is_kept: None]


class Kernel:
    """Machine code as a function of NumPy arrays; results are written into them."""

    def __init__(self, name: str, code: bytes) -> None:
        self._types = [
            (np.dtype(TYPES[kind]), num_dimensions) for kind, num_dimensions in arrays_of(name)
        ]
        self._name = name
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        self._call = kind(self._engine.get_function_address(SYMBOL))

    def __call__(self, *arrays: Array) -> None:
        """Runs without the GIL. Raises TypeError as `numbers_of` does."""
        self.run(table_of(self.numbers_of(arrays)))

    def numbers_of(self, arrays: Sequence[Array], first: int = 0) -> list[int]:
        """The addresses and sizes of some arguments, from number `first` on; the caller keeps the
        arrays while these are in use.

        Raises TypeError for an array of another type, number of dimensions or layout than the
        kernel reads.
        """
        numbers: list[int] = []
        for i, array in enumerate(arrays, first):
            dtype, num_dimensions = self._types[i]
            if array.dtype != dtype or array.ndim != num_dimensions or not array.flags.c_contiguous:
                wanted = f"{num_dimensions} dimensions of {dtype}, one after the other"
                raise TypeError(f"{self._name}: {array.dtype} {array.shape} is not {wanted}")
            numbers.append(array.__array_interface__["data"][0])
            numbers += array.shape
        return numbers

    def run(self, table: ctypes.Array[ctypes.c_int64]) -> None:
        """Runs with the numbers of all arguments, as `numbers_of` gives them, in a table."""
        nothing = ctypes.c_int64()  # a place for a result and one for an exception, which none has
        if self._call(ctypes.addressof(nothing), ctypes.addressof(nothing), table):
            raise KernelError(f"{self._name} failed; report it as a defect")


def table_of(numbers: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """The numbers as `Kernel.run` takes them; a caller may keep the table and change numbers."""
    return (ctypes.c_int64 * len(numbers))(*numbers)


def arrays_of(name: str) -> Iterator[tuple[str, int]]:
    """Each array of a kernel: its type, and the number of its dimensions."""
    for word in KERNELS[name][1].split():
        kind, _, num_dimensions = word.partition(",")
        yield kind, int(num_dimensions or 1)


@functools.cache
def kernel(name: str) -> Kernel:
    """One of KERNELS. Compiles it, and with it all USUAL ones if it is one, where it is not kept.

    Raises KernelError; warns (KernelWarning) where it cannot be kept.
    """
    directory, is_kept = kernel_directory()
    file = directory / file_name(name)
    if not (code := _read(file)):
        on_compiling[-1](is_kept)
        why = _compile(name, directory)
        if not (code := _read(file)):
            way = "make room there, or set NUMBA_CACHE_DIR to another directory"
            raise KernelError(f"kernels cannot be compiled in {directory} ({why}); {way}")
    return Kernel(name, code)


def file_name(name: str) -> str:
    """The file of a kernel."""
    return name.replace(" ", "-") + ".o"


def _read(file: Path) -> bytes:
    """An object file's content; empty where there is none."""
    with suppress(OSError):
        return file.read_bytes()
    return b""


def _compile(name: str, directory: Path) -> str:
    """Compile `name`, and all USUAL kernels if it is one, and say why it may have failed. One
    process compiles at a time."""
    package = Path(sys.modules["streamer"].__file__ or "").parents[1]
    absolute = filter(os.path.isabs, sys.path)
    env = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("NUMBA_") or key in CHOOSES_PROCESSOR
    }
    path = {"PYTHONPATH": os.pathsep.join([str(package), *absolute])}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "streamer.model.kernels.build", str(directory), name],
            # numba reads a file of settings in the working directory: in this one there is none
            cwd=directory,
            env=env | path | ONE_THREAD,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=MOST_COMPILING_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]


@functools.cache
def kernel_directory() -> tuple[Path, bool]:
    """The directory of this version's kernels, and whether it stays after this process.

    It does not where no directory is safe; KernelWarning says why.
    """
    name = f"{sys.modules['streamer'].__version__}-{_digest()}"
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    bases = [Path(cache) / "streamer" / "kernels"]
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        bases.insert(0, Path(chosen) / "streamer")
    for base in bases:
        # Without links: each directory on the way is looked at, so no other user can change it.
        directory = Path(os.path.realpath(base)) / name
        why = _why_not(directory) if base.is_absolute() else "a relative path"
        if why is None:
            return directory, True
        told = f"compiled kernels are not kept in {base} ({why})"
        way = "set NUMBA_CACHE_DIR to a directory of your own"
        warnings.warn(f"{told}; {way}", KernelWarning, stacklevel=2)
    try:
        _TEMPORARY.append(tempfile.TemporaryDirectory(prefix="streamer-"))
    except OSError as error:
        raise KernelError(f"no directory for compiled kernels ({error.strerror})") from None
    return Path(_TEMPORARY[-1].name), False


_TEMPORARY: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


def _digest() -> str:
    """16 characters that change with any source of a kernel, and with the processor."""
    sources = b"".join(path.read_bytes() for path in sorted(SOURCES.glob("*.py")))
    chosen = [os.environ.get(name) for name in CHOOSES_PROCESSOR]
    host = f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()} {sorted(_FEATURES.items())}"
    return hashlib.blake2b(sources + f"{host} {chosen}".encode(), digest_size=8).hexdigest()


def _why_not(directory: Path) -> str | None:
    """Why kernels may not lie in `directory`; None where it is there, and safe: neither it nor a
    directory on the way to it lets another user change what lies there."""
    try:
        for path in reversed((directory, *directory.parents)):
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
        for step in (directory, *directory.parents):
            found = step.lstat()
            shared = found.st_mode & (stat.S_IWOTH | stat.S_IWGRP)
            # the sticky bit keeps users from replacing each other's files; a group of the user
            # alone, as many systems make it, may write above the directory
            if step != directory and found.st_mode & stat.S_ISVTX:
                shared = 0
            elif step != directory and found.st_gid == os.getegid() == os.geteuid():
                shared &= stat.S_IWOTH
            if not stat.S_ISDIR(found.st_mode):
                return f"{step} is no directory"
            if found.st_uid not in (0, os.geteuid()):
                return f"{step} belongs to another user"
            if shared:
                return f"{step} can be written by others"
    except OSError as error:
        return error.strerror or str(error)
    return None
