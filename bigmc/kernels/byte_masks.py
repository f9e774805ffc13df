"""Bit masks of 64 bytes of text: scans go through the bits that are set instead of through the bytes."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

BLOCK = 64
"""Bytes in a set."""

_VECTOR = ir.VectorType(ir.IntType(8), BLOCK)


def _load(context: Any, builder: Any, array_type: Any, array: Any, offset: Any) -> Any:
    """Return the `BLOCK` bytes of a C-contiguous uint8 array from ``offset`` on."""
    data = context.make_array(array_type)(context, builder, array).data
    pointer = builder.bitcast(builder.gep(data, [offset]), _VECTOR.as_pointer())
    return builder.load(pointer, align=1)


def _spread(builder: Any, byte: Any) -> Any:
    """Return a vector of one byte."""
    index = ir.IntType(32)
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), byte, index(0))
    mask = ir.Constant(ir.VectorType(index, BLOCK), [0] * BLOCK)
    return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), mask)


def _type_equal_bytes(typing: Any, data: Any, at: Any, byte: Any) -> Any:
    """Tell which of ``data[at : at + BLOCK]`` are ``byte``: bit k is that of ``data[at + k]``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, at, byte = arguments
        block = _load(context, builder, signature.args[0], array, at)
        equal = builder.icmp_unsigned("==", block, _spread(builder, byte))
        return builder.bitcast(equal, ir.IntType(64))

    return types.uint64(data, types.int64, types.uint8), generate


def _type_load_eight(typing: Any, data: Any, at: Any) -> Any:
    """Return ``data[at : at + 8]`` as one number, the first byte lowest where the machine's order is so."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(start, [arguments[1]]), ir.IntType(64).as_pointer())
        return builder.load(pointer, align=1)

    return types.uint64(data, types.int64), generate


def _type_trailing_zeros(typing: Any, x: Any) -> Any:
    """Count the zero bits below the lowest bit of a uint64; 64 if there is none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, False))

    return types.int64(types.uint64), generate


def _type_bit_count(typing: Any, x: Any) -> Any:
    """Count the bits of a uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


equal_bytes: Any = intrinsic(_type_equal_bytes)
load_eight: Any = intrinsic(_type_load_eight)
trailing_zeros: Any = intrinsic(_type_trailing_zeros)
bit_count: Any = intrinsic(_type_bit_count)
