"""Compiles kernels to object files, in a process of its own: `python -m ...build DIRECTORY NAME`.

The only module that needs numba. A kernel's function takes a table of numbers: of each array its
address and its sizes, one array after the other.
"""

# ruff: noqa: E402
from __future__ import annotations

import fcntl
import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it inside LLVM, too
# numba would load it for algebra that no kernel has: OpenBLAS, which loops for ever without memory
sys.modules["scipy"] = None  # type: ignore[assignment]

from numba import njit, types
from numba.core import cgutils
from numba.core.codegen import CPUCodeLibrary, JITCodeLibrary, JITCPUCodegen
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from streamer.model.kernels.library import (
    KERNELS,
    SYMBOL,
    USUAL,
    _read,
    arrays_of,
    file_name,
    sealed,
)

_KINDS = {"i8": types.int64, "i1": types.int8, "u2": types.uint16, "f4": types.float32}
OUTSIDE = {"sqrtf", "log2", "log2f", "memset", "memcpy"}  # from C's library
ENTRY = "streamer_entry"


def main(directory: Path, name: str) -> None:
    """Write the files of `name`, and of all USUAL kernels if it is one, that are not there yet."""
    _compile_entries_alone()
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be compiling the same
        for each in USUAL if name in USUAL else [name]:
            file = directory / file_name(each)
            if _read(file) is None:
                beside = file.with_suffix(".new")
                beside.write_bytes(sealed(object_file(each)))
                os.replace(beside, file)


def _compile_entries_alone() -> None:
    """Have numba optimise and compile only entries, in which the code of all others is linked.

    It would do so for each function by itself first: a third of the time in all.
    """
    njit(types.int64(types.int64))(lambda number: number)  # numba's own start needs all of it
    optimise = CPUCodeLibrary._optimize_final_module

    def optimise_entries(library: Any) -> None:
        if ENTRY in library.name:
            optimise(library)

    CPUCodeLibrary._optimize_final_module = optimise_entries
    JITCodeLibrary._finalize_specific = lambda library: None
    JITCodeLibrary.get_pointer_to_function = lambda library, name: library._ensure_finalized() or 0
    JITCPUCodegen.set_env = lambda codegen, name, env: None


def object_file(name: str) -> bytes:
    """The machine code of a kernel, for this processor."""
    module, _, function = KERNELS[name][0].partition(".")
    kernel = getattr(importlib.import_module(f"streamer.model.kernels.{module}"), function)
    options = {"_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    entry = njit(types.void(types.CPointer(types.int64)), error_model="numpy", **options)(
        _taking_a_table(kernel, name)
    )
    (compiled,) = entry.overloads.values()
    code: Any = compiled.library._final_module
    code.get_function(compiled.fndesc.mangled_name).name = SYMBOL
    needed = {each.name for each in code.functions if each.is_declaration}
    if outside := {each for each in needed if not each.startswith("llvm.")} - OUTSIDE:
        raise SystemExit(f"kernel {name} calls {sorted(outside)}, which is not there without numba")
    found: bytes = compiled.library.codegen._tm.emit_object(code)
    return found


def _taking_a_table(kernel: Any, name: str) -> Any:
    """kernel(array, ...) as a function of one table."""
    names = {"kernel": kernel}
    arrays = []
    at = 0
    for kind, num_dimensions in arrays_of(name):
        names[f"{kind}_{num_dimensions}"] = _array(types.Array(_KINDS[kind], num_dimensions, "C"))
        arrays.append(f"{kind}_{num_dimensions}(table, {at})")
        at += 1 + num_dimensions
    exec(f"def {ENTRY}(table):\n    kernel({', '.join(arrays)})\n", names)
    return names[ENTRY]


def _array(kind: types.Array) -> Any:
    """A kernel part: the array of this kind whose address and sizes are in `table` from `at` on."""

    @intrinsic
    def array(_context: Any, table: Any, _at: Any) -> Any:
        def codegen(context: Any, b: Any, _signature: Any, values: Any) -> Any:
            table, at = values
            places = [b.gep(table, [b.add(at, at.type(i))]) for i in range(1 + kind.ndim)]
            address, *shape = map(b.load, places)
            found = context.make_array(kind)(context, b)
            size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
            strides = [address.type(size)]
            for length in shape[:0:-1]:
                strides.insert(0, b.mul(strides[0], length))
            populate_array(
                found,
                data=b.inttoptr(address, found.data.type),
                shape=cgutils.pack_array(b, shape),
                strides=cgutils.pack_array(b, strides),
                itemsize=address.type(size),
                meminfo=None,
            )
            return found._getvalue()

        return kind(table, types.intp), codegen

    return array


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
