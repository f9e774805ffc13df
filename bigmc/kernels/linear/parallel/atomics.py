# mypy: ignore-errors
"""Numbers that several threads read and write, as functions that kernels call.

What a thread wrote before it stored a number is there for a thread that loads it. Arrays are int64; a place
counts elements from the start.
"""

from __future__ import annotations

from numba import types
from numba.extending import intrinsic

from bigmc.kernels.linear.parallel.simd import element

_BYTES = 8


def _type_load(typing, board, place):
    """Return the number at a place."""
    signature = types.int64(board, place)

    def generate(context, builder, signature, arguments):
        board, place = arguments
        source = element(context, builder, signature.args[0], board, place)
        return builder.load_atomic(source, "acquire", _BYTES)

    return signature, generate


def _type_store(typing, board, place, value):
    """Set the number at a place."""
    signature = types.void(board, place, types.int64)

    def generate(context, builder, signature, arguments):
        board, place, value = arguments
        target = element(context, builder, signature.args[0], board, place)
        builder.store_atomic(value, target, "release", _BYTES)
        return context.get_dummy_value()

    return signature, generate


def _type_add(typing, board, place, value):
    """Add to the number at a place; returns what it was."""
    signature = types.int64(board, place, types.int64)

    def generate(context, builder, signature, arguments):
        board, place, value = arguments
        target = element(context, builder, signature.args[0], board, place)
        return builder.atomic_rmw("add", target, value, "acq_rel")

    return signature, generate


def _type_replace(typing, board, place, expected, value):
    """Set the number at a place if it is the expected one; returns whether it was."""
    signature = types.boolean(board, place, types.int64, types.int64)

    def generate(context, builder, signature, arguments):
        board, place, expected, value = arguments
        target = element(context, builder, signature.args[0], board, place)
        result = builder.cmpxchg(target, expected, value, "acq_rel", "acquire")
        return builder.extract_value(result, 1)

    return signature, generate


atomic_load = intrinsic(_type_load)
atomic_store = intrinsic(_type_store)
atomic_add = intrinsic(_type_add)
atomic_replace = intrinsic(_type_replace)
