"""The compiled kernels of this machine: found on disk, or compiled there once.

`kernel` gives a function of machine code. Loading it takes LLVM alone: numba, which compiles it,
would cost a start 0.5 s of CPU time and 80 MB, so `write_kernels` runs in a process of its own. The
machine code takes two tables: each array's address, and the sizes of all.

Another user who can write the files runs code as this one. So they lie in `streamer/kernels` of
`$NUMBA_CACHE_DIR` or else `$XDG_CACHE_HOME` (`~/.cache`), with mode 700, and are used only where no
other user could have put or changed them. Else the kernels are compiled at every start, and one
line says so.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import functools
import hashlib
import importlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import warnings
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from streamer.model.checkpoint.weights import ModelError, ModelWarning

# Sizes on which compiled code and its callers agree.
PANEL = 32  # columns of a panel of weights
QUERIES = 64  # queries of one row, and positions they see, whose scores are held at a time
BLOCK = 128
LEAD = 8 * PANEL  # zeros before a stretch that is correlated with itself, for tiles of 8 rows
DIGEST_BYTES = 8
NUM_CANDIDATES = 4  # F0s of a frame: with 3 medians agree less with Praat's, with 8 no more
CHOOSES_PROCESSOR = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")  # kernels are compiled for another one
SYMBOL = "streamer_kernel"  # the function of an object file
ENTRY = "streamer_entry"  # the same before it is compiled
COMPILE = f"import sys; from {__name__} import write_kernels; write_kernels(*sys.argv[1:])"
OUTSIDE = {"sqrtf", "log2", "log2f", "memset", "memcpy"}  # C functions that kernels may call
_ANY = ctypes.c_char * 0  # gives an address four times as fast as NumPy
_FEATURES = llvm.get_host_cpu_features()
# Whether weights stay float16. Without an instruction that converts them (x86-64 before F16C) LLVM
# would call a function that this process may not have, and end the process.
KEEPS_HALVES = any(map(_FEATURES.get, ("f16c", "neon"))) and not os.environ.get("NUMBA_CPU_NAME")
Floats = NDArray[np.float32]
TYPES = {"i8": np.int64, "i1": np.int8, "u2": np.uint16, "f4": np.float32}
_TEXT = "i8,2 i8 f4 {w},2 f4,2 f4 {w} f4,2 f4,2 f4,2 f4,2 f4 f4 f4 f4 f4"
_TOWER = "f4 i8,2 i8 {w} {w},2 f4,2 f4 f4 f4 f4 f4 f4 f4 f4 f4 f4"
# Each kernel: where its function is, and its arrays' types, with their dimensions if more than one.
KERNELS = {
    "text uint16": ("layers.run_text", _TEXT.format(w="u2")),
    "tower uint16": ("layers.run_tower", _TOWER.format(w="u2")),
    "text float32": ("layers.run_text", _TEXT.format(w="f4")),
    "tower float32": ("layers.run_tower", _TOWER.format(w="f4")),
    "filter rows": ("arithmetic.filter_rows", "f4 f4 i8 f4"),
    "voice activity": ("arithmetic.judge_frames", "f4,2 f4 f4 f4 f4 f4"),
    "find candidates": ("arithmetic.find_candidates", "f4 i8 f4 f4 i8 f4 f4 f4 f4 f4,2"),
    "find path": ("arithmetic.find_path", "f4,2 i8 f4 f4,2 f4,2 i1,2 f4"),
}
_OTHER = "float32" if KEEPS_HALVES else "uint16"
USUAL = [name for name in KERNELS if _OTHER not in name]  # of the shipped pair


# Called before compiling, which takes seconds; the argument: whether kernels are kept on disk.
on_compiling: list[Callable[[bool], None]] = [lambda is_kept: None]


class Kernel:
    """Machine code as a function of NumPy arrays; results are written into them."""

    def __init__(self, name: str, code: bytes) -> None:
        self._arrays = list(arrays_of(name))
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        kind = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)
        self._call = kind(self._engine.get_function_address(SYMBOL))

    def __call__(self, *arrays: Any) -> None:
        """Runs without the GIL. Raises TypeError for an array of another type or number of
        dimensions than the kernel reads, one with gaps, and one that must not be written."""
        addresses, sizes = array("Q"), array("q")
        for each, (kind, num_dimensions) in zip(arrays, self._arrays, strict=True):
            if each.dtype != TYPES[kind] or each.ndim != num_dimensions:
                wanted = f"{num_dimensions} dimensions of {TYPES[kind].__name__}"
                raise TypeError(f"{each.dtype} {each.shape} is not {wanted}")
            addresses.append(ctypes.addressof(_ANY.from_buffer(each)))
            sizes.extend(each.shape)
        nothing = ctypes.byref(ctypes.c_int64())  # for a result and an exception, which none has
        self._call(nothing, nothing, addresses.buffer_info()[0], sizes.buffer_info()[0])


def arrays_of(name: str) -> Iterator[tuple[str, int]]:
    """Each array of a kernel: its type, and the number of its dimensions."""
    for word in KERNELS[name][1].split():
        kind, _, num_dimensions = word.partition(",")
        yield kind, int(num_dimensions or 1)


class Matrix:
    """`Matrix(values)(rows)` is the product rows [n, depth] @ values [depth, columns], and a bias.

    A row's result is the same bits beside any others, and one thread works: OpenBLAS, which takes
    several, waited for them 20 times as long on a busy machine (2026-11).
    """

    def __init__(self, values: Floats, bias: Floats | None = None) -> None:
        self.panels = panels(np.asarray(values.T, np.float32))
        self.depth, self._columns = values.shape
        self._bias = np.zeros(-(-self._columns // PANEL) * PANEL, np.float32)
        self._bias[: self._columns] = 0 if bias is None else bias

    def __call__(self, rows: Floats) -> Floats:
        found = np.tile(self._bias, (len(rows), 1))
        sizes = np.array([len(rows), self.depth, len(self._bias)])
        kernel("filter rows")(rows.reshape(-1), self.panels, sizes, found.reshape(-1))
        return found[:, : self._columns]


def panels(matrix: NDArray[Any]) -> NDArray[Any]:
    """[out, in] -> flat [panels, in, PANEL], zeros where `out` ends; float16 by its bits. A
    convolution [out, in, 3] is the product with three frames in a row, `in` padded."""
    if matrix.ndim == 3:
        frames = np.pad(matrix.transpose(0, 2, 1), ((0, 0), (0, 0), (0, -matrix.shape[1] % PANEL)))
        matrix = frames.reshape(len(matrix), -1)
    out, depth = matrix.shape
    padded = np.pad(matrix, ((0, -out % PANEL), (0, 0))).reshape(-1, PANEL, depth)
    found = np.ascontiguousarray(padded.transpose(0, 2, 1)).reshape(-1)
    if found.dtype == np.float16 and KEEPS_HALVES:
        return found.view(np.uint16)
    return found.astype(np.float32, copy=False)


@functools.cache
def kernel(name: str) -> Kernel:
    """One of KERNELS, compiled where it is not kept, with all USUAL ones if it is one.

    Raises ModelError; warns (ModelWarning) where it cannot be kept.
    """
    directory, is_kept = kernel_directory()
    file = directory / f"{name}.o"
    if (code := code_in(file)) is None:
        on_compiling[-1](is_kept)
        why = _compile(name, directory)
        if (code := code_in(file)) is None:
            way = "make room there, or set NUMBA_CACHE_DIR to another directory"
            raise ModelError(directory, f"kernels cannot be compiled here ({why}); {way}")
    return Kernel(name, code)


def code_in(file: Path) -> bytes | None:
    """The machine code in a file, after its digest. None where it is missing, or cut short as on a
    full disk: it would end the process."""
    held = file.read_bytes() if file.is_file() else b""
    code = held[DIGEST_BYTES:]
    return code if code and held == _digest_of(code) + code else None


def _digest_of(code: bytes) -> bytes:
    return hashlib.blake2b(code, digest_size=DIGEST_BYTES).digest()


def _compile(name: str, directory: Path) -> str:
    """Compile `name`, and all USUAL kernels if it is one, and say why it may have failed. One
    process compiles at a time."""
    package = Path(sys.modules["streamer"].__file__ or "").parents[1]
    env = {k: v for k, v in os.environ.items() if k[:6] != "NUMBA_" or k in CHOOSES_PROCESSOR}
    env["PYTHONPATH"] = os.pathsep.join([str(package), *filter(os.path.isabs, sys.path)])
    # Nothing is multiplied there; with too little memory for its threads OpenBLAS loops for ever.
    env["OPENBLAS_NUM_THREADS"] = "1"
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", COMPILE, str(directory), name],
            # numba reads a file of settings in the working directory: in this one there is none
            cwd=directory,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,  # another process may be compiling before this one
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]


def write_kernels(directory: str, name: str) -> None:
    """Write the missing files: that of `name`, and of all USUAL kernels if it is one."""
    _compile_entries_alone()
    with Path(directory, "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be compiling the same
        for each in USUAL if name in USUAL else [name]:
            file = Path(directory, f"{each}.o")
            if code_in(file) is None:
                code, beside = object_file(each), file.with_suffix(".new")
                beside.write_bytes(_digest_of(code) + code)
                beside.replace(file)


def _compile_entries_alone() -> None:
    """Let numba optimise and compile only entries, which hold the code of all other functions. By
    itself it would first do so for each function: a quarter of all the CPU time."""
    from numba import njit, types
    from numba.core.codegen import CPUCodeLibrary, JITCodeLibrary, JITCPUCodegen

    njit(types.int64(types.int64))(lambda number: number)  # starts numba, before it is changed
    optimise = CPUCodeLibrary._optimize_final_module
    CPUCodeLibrary._optimize_final_module = lambda own: ENTRY in own.name and optimise(own)
    JITCodeLibrary._finalize_specific = lambda own: None
    JITCodeLibrary.get_pointer_to_function = lambda own, name: own._ensure_finalized() or 0
    JITCPUCodegen.set_env = lambda own, name, env: None


def object_file(name: str) -> bytes:
    """The machine code of a kernel, for this processor. Raises SystemExit for one that could not
    run without numba."""
    from numba import from_dtype, njit, types
    from numba.np.arrayobj import get_cfarray_intrinsic

    from streamer.model.kernels.arithmetic import ALONE

    module, _, function = KERNELS[name][0].partition(".")
    kernel = getattr(importlib.import_module(f"{__package__}.{module}"), function)
    names = {"kernel": kernel}
    for kind, dtype in TYPES.items():
        names[kind] = get_cfarray_intrinsic("C", types.DType(from_dtype(np.dtype(dtype))))
    arrays, num_sizes = [], 0
    for i, (kind, num_dimensions) in enumerate(arrays_of(name)):
        shape = "".join(f"sizes[{num_sizes + j}], " for j in range(num_dimensions))
        arrays.append(f"{kind}(addresses[{i}], ({shape}))")
        num_sizes += num_dimensions
    exec(f"def {ENTRY}(addresses, sizes):\n    kernel({', '.join(arrays)})\n", names)
    tables = types.CPointer(types.voidptr), types.CPointer(types.int64)
    entry = njit(types.void(*tables), error_model="numpy", **ALONE)(names[ENTRY])
    (compiled,) = entry.overloads.values()
    code: Any = compiled.library._final_module
    code.get_function(compiled.fndesc.mangled_name).name = SYMBOL
    needed = {each.name for each in code.functions if each.is_declaration}
    if outside := {each for each in needed if not each.startswith("llvm.")} - OUTSIDE:
        raise SystemExit(f"kernel {name} calls {sorted(outside)}, which is not there without numba")
    found: bytes = compiled.library.codegen._tm.emit_object(code)
    return found


@functools.cache
def kernel_directory() -> tuple[Path, bool]:
    """The directory of this version's kernels, and whether it stays after this process.

    It does not where no directory is safe; ModelWarning says why.
    """
    name = f"{sys.modules['streamer'].__version__}-{_digest()}"
    chosen = map(os.environ.get, ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"))
    base = Path(next(filter(None, chosen), os.path.expanduser("~/.cache")), "streamer", "kernels")
    # Without links: each directory on the way is looked at, so no other user can change it.
    directory = Path(os.path.realpath(base)) / name
    why = _why_not(directory) if base.is_absolute() else "a relative path"
    if why is None:
        return directory, True
    told = f"compiled kernels are not kept in {base} ({why})"
    way = "set NUMBA_CACHE_DIR to a directory of your own"
    warnings.warn(f"{told}; {way}", ModelWarning, stacklevel=2)
    try:
        directory = Path(tempfile.mkdtemp(prefix="streamer-"))
    except OSError as error:
        told = f"no directory for compiled kernels there ({error.strerror})"
        raise ModelError("TMPDIR", told) from None
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory, False


def _digest() -> str:
    """16 characters that change with any source of a kernel, and with the processor."""
    sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    chosen = [os.environ.get(name) for name in CHOOSES_PROCESSOR]
    host = f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()} {sorted(_FEATURES.items())}"
    return _digest_of(sources + f"{host} {chosen}".encode()).hex()


def _why_not(directory: Path) -> str | None:
    """Why kernels may not lie in `directory`; None where it is there, and safe: neither it nor a
    directory on the way to it lets another user change what lies there."""
    try:
        for step in reversed((directory, *directory.parents)):
            with suppress(FileExistsError):
                step.mkdir(mode=0o700)
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
