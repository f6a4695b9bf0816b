"""Parts of kernels for threads: atomic int64 cells, sleep and wake by a pipe, a yield of the core.

In: int64 arrays. Out: kernel parts. All loads and stores are sequentially consistent. `sleep`,
`wake` and `give_way` are POSIX's read, write and sched_yield: kernels that call them are not
compiled elsewhere.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from streamer.extras.large.tile import compiled

_I8 = ir.IntType(8)
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
MOST_WOKEN = 64
MOST_FAILURES = 10_000  # of a sleep, in a row: then the pipe is gone


def _cell(context: Any, b: ir.IRBuilder, signature: Any, values: Any) -> ir.Value:
    return b.gep(context.make_array(signature.args[0])(context, b, values[0]).data, [values[1]])


@intrinsic
def add_to(_context: Any, cells: Any, _index: Any, _value: Any) -> Any:
    """cells[index] += value; what it was before."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, values: Any) -> Any:
        return b.atomic_rmw("add", _cell(context, b, signature, values), values[2], "seq_cst")

    return types.int64(cells, types.intp, types.int64), codegen


@intrinsic
def look_at(_context: Any, cells: Any, _index: Any) -> Any:
    """cells[index]."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, values: Any) -> Any:
        return b.load_atomic(_cell(context, b, signature, values), "seq_cst", 8)

    return types.int64(cells, types.intp), codegen


@intrinsic
def put_in(_context: Any, cells: Any, _index: Any, _value: Any) -> Any:
    """cells[index] = value."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, values: Any) -> Any:
        b.store_atomic(values[2], _cell(context, b, signature, values), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(cells, types.intp, types.int64), codegen


@intrinsic
def give_way(_context: Any) -> Any:
    """Let another thread have this core, if one wants it."""

    def codegen(context: Any, b: ir.IRBuilder, _signature: Any, _values: Any) -> Any:
        b.call(
            cgutils.get_or_insert_function(b.module, ir.FunctionType(_I32, []), "sched_yield"), []
        )
        return context.get_dummy_value()

    return types.void(), codegen


def _transfer(name: str) -> Any:
    @intrinsic
    def transfer(_context: Any, _pipe: Any, _count: Any) -> Any:
        def codegen(_: Any, b: ir.IRBuilder, _signature: Any, values: Any) -> Any:
            kind = ir.FunctionType(_I64, [_I32, _I8.as_pointer(), _I64])
            room = b.bitcast(
                cgutils.alloca_once(b, ir.ArrayType(_I8, MOST_WOKEN)), _I8.as_pointer()
            )
            return b.call(
                cgutils.get_or_insert_function(b.module, kind, name),
                [b.trunc(values[0], _I32), room, values[1]],
            )

        return types.int64(types.int64, types.int64), codegen

    return transfer


_sleep = _transfer("read")
# wake(pipe, n): n sleepers, at most MOST_WOKEN; a pipe that is full is not waited for
wake = _transfer("write")


@compiled
def sleep(pipe):
    """Wait until another thread wakes this one; False where the pipe is gone."""
    failures = 0
    while _sleep(pipe, 1) != 1:  # a signal's handler may have ended it: EINTR
        failures += 1
        if failures == MOST_FAILURES:
            return False
    return True


@intrinsic
def at_address(_context: Any, _address: Any) -> Any:
    """A pointer for numba.carray, from the address of an array's first number."""

    def codegen(_: Any, b: ir.IRBuilder, _signature: Any, values: Any) -> Any:
        return b.inttoptr(values[0], _I8.as_pointer())

    return types.voidptr(types.int64), codegen
