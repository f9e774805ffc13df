# mypy: ignore-errors
"""Answers of learners on the samples: from codes of columns to bits and lists of rows."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bigmc.kernels.decorators import kernel

_ONE = np.uint64(1)
_WORD = 64


@intrinsic
def range_word(typing, codes, at, low, high):
    """Return a word with the bits of the `_WORD` codes between two codes, both included."""
    signature = types.uint64(codes, at, low, high)

    def generate(context, builder, signature, arguments):
        codes, at, low, high = arguments
        data = context.make_array(signature.args[0])(context, builder, codes).data
        lanes = ir.VectorType(ir.IntType(8), _WORD)
        values = builder.load(builder.bitcast(builder.gep(data, [at]), lanes.as_pointer()), align=1)

        def spread(scalar):
            one = builder.insert_element(ir.Constant(lanes, ir.Undefined), scalar, ir.IntType(32)(0))
            places = ir.Constant(ir.VectorType(ir.IntType(32), _WORD), [0] * _WORD)
            return builder.shuffle_vector(one, ir.Constant(lanes, ir.Undefined), places)

        inside = builder.and_(
            builder.icmp_unsigned(">=", values, spread(low)),
            builder.icmp_unsigned("<=", values, spread(high)),
        )
        return builder.bitcast(inside, ir.IntType(64))

    return signature, generate


@kernel
def range_bits(codes, low, high, words):
    """Set the bit of every sample whose uint8 code is in ``[low, high]``; bits beyond the samples are 0."""
    words[:] = 0
    first, last = np.uint8(low), np.uint8(high)
    whole = codes.shape[0] // _WORD
    for w in range(whole):
        words[w] = range_word(codes, w * _WORD, first, last)
    for i in range(whole * _WORD, codes.shape[0]):
        if first <= codes[i] <= last:
            words[whole] |= _ONE << np.uint64(i - whole * _WORD)


@kernel
def spread_codes(column, entries, zero, out):
    """Write the uint8 code of every sample in one column of a block; `zero` is that without an entry."""
    out[:] = zero
    indptr = entries.indptr
    for s in range(indptr.shape[0]):
        own = out[entries.base[s] : entries.base[s + 1]]
        at = entries.rows[indptr[s, column] : indptr[s, column + 1]]
        values = entries.codes[indptr[s, column] : indptr[s, column + 1]]
        for k in range(at.shape[0]):
            own[np.uint64(at[k])] = values[k]


@kernel
def leaf_bits(nodes, leaf, words):
    """Set the bit of every sample whose leaf is positive; bits beyond the samples are 0.

    `nodes`, uint8 of shape (n_samples,), is the leaf, or code, of each sample; `leaf` is int8 of shape
    (256,).
    """
    words[:] = 0
    for w in range(words.shape[0]):
        bits = np.uint64(0)
        first = w * 64
        for k in range(min(64, nodes.shape[0] - first)):
            if leaf[nodes[first + k]] > 0:
                bits |= _ONE << np.uint64(k)
        words[w] = bits


@kernel
def range_rows(column, entries, low, high, out):
    """Write the samples whose entry in one column has a code in ``[low, high]``; return their number."""
    n = 0
    indptr, base = entries.indptr, entries.base
    for s in range(indptr.shape[0]):
        at = entries.rows[indptr[s, column] : indptr[s, column + 1]]
        values = entries.codes[indptr[s, column] : indptr[s, column + 1]]
        for k in range(at.shape[0]):
            if low <= values[k] <= high:
                out[n] = base[s] + at[k]
                n += 1
    return n
