"""Prefetch memory whose addresses are known early but follow no pattern."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

CACHE_LINE = 64
"""Bytes that come at once."""


def _type_prefetch(typing: Any, array: Any, offset: Any) -> Any:
    """Begin to load the cache line ``offset`` bytes after an array's start, which may be outside of it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = cgutils.pointer_add(builder, start, arguments[1], cgutils.voidptr_t)
        number = ir.IntType(32)
        takes = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [cgutils.voidptr_t], takes)
        # To read, to be kept in all caches, of the data cache.
        builder.call(prefetch, [place, *(ir.Constant(number, flag) for flag in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


prefetch: Any = intrinsic(_type_prefetch)
