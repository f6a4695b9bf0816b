"""Compiles kernels to object files, in a process of its own: `python -m ...build DIRECTORY NAME`.

The only module that needs numba. A kernel's function takes a table of numbers: of each array its
address and its sizes, one array after the other.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numba import from_dtype, njit, types
from numba.core.codegen import CPUCodeLibrary, JITCodeLibrary, JITCPUCodegen
from numba.np.arrayobj import get_cfarray_intrinsic

from streamer.model.kernels import library
from streamer.model.kernels.arithmetic import ALONE, at_address

OUTSIDE = {"sqrtf", "log2", "log2f", "memset", "memcpy"}  # from C's library
ENTRY = "streamer_entry"


def main(directory: Path, name: str) -> None:
    """Write the files of `name`, and of all USUAL kernels if it is one, that are not there yet."""
    _compile_entries_alone()
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be compiling the same
        for each in library.USUAL if name in library.USUAL else [name]:
            file = directory / f"{each}.o"
            if not library.is_there(file):
                beside = file.with_suffix(".new")
                beside.write_bytes(object_file(each))
                os.replace(beside, file)


def _compile_entries_alone() -> None:
    """Have numba optimise and compile only entries, in which the code of all others is linked. It
    would do so for each function by itself first: a fifth of the CPU time in all."""
    njit(types.int64(types.int64))(lambda number: number)  # numba's own start needs all of it
    optimise = CPUCodeLibrary._optimize_final_module
    CPUCodeLibrary._optimize_final_module = lambda own: ENTRY in own.name and optimise(own)
    JITCodeLibrary._finalize_specific = lambda own: None
    JITCodeLibrary.get_pointer_to_function = lambda own, name: own._ensure_finalized() or 0
    JITCPUCodegen.set_env = lambda own, name, env: None


def object_file(name: str) -> bytes:
    """The machine code of a kernel, for this processor: kernel(array, ...) as a function of a
    table."""
    module, _, function = library.KERNELS[name][0].partition(".")
    kernel = getattr(importlib.import_module(f"streamer.model.kernels.{module}"), function)
    names = {"kernel": kernel, "at_address": at_address}
    for kind, dtype in library.TYPES.items():
        names[kind] = get_cfarray_intrinsic("C", types.DType(from_dtype(np.dtype(dtype))))
    arrays, at = [], 0
    for kind, num_dimensions in library.arrays_of(name):
        shape = "".join(f"table[{at + i}], " for i in range(1, 1 + num_dimensions))
        arrays.append(f"{kind}(at_address(table[{at}]), ({shape}))")
        at += 1 + num_dimensions
    exec(f"def {ENTRY}(table):\n    kernel({', '.join(arrays)})\n", names)
    entry = njit(types.void(types.CPointer(types.int64)), error_model="numpy", **ALONE)(
        names[ENTRY]
    )
    (compiled,) = entry.overloads.values()
    code: Any = compiled.library._final_module
    code.get_function(compiled.fndesc.mangled_name).name = library.SYMBOL
    needed = {each.name for each in code.functions if each.is_declaration}
    if outside := {each for each in needed if not each.startswith("llvm.")} - OUTSIDE:
        raise SystemExit(f"kernel {name} calls {sorted(outside)}, which is not there without numba")
    found: bytes = compiled.library.codegen._tm.emit_object(code)
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
