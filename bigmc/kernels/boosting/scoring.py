# mypy: ignore-errors
"""Scores of a boosted model from the codes of its features.

A tree is evaluated for 64 samples at once: a word for each node has a bit for each sample that reaches it.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bigmc.kernels.boosting.predictions import range_word
from bigmc.kernels.decorators import inlined_kernel, inner_kernel, kernel

_WORD, _LANES = 64, 8
_ROWS = 1024
"""Samples whose codes and scores stay in the nearest cache while all trees are evaluated for them."""
_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


@intrinsic
def _add_signed(typing, out, at, positive, negative, value):
    """Add a value to those of `_LANES` numbers whose first bits are positive, subtract it where negative."""
    signature = types.void(out, at, positive, negative, value)

    def generate(context, builder, signature, arguments):
        out, at, positive, negative, value = arguments
        lanes = ir.VectorType(ir.DoubleType(), _LANES)
        first = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [0] * _LANES)

        def every(scalar):
            one = builder.insert_element(ir.Constant(lanes, ir.Undefined), scalar, ir.IntType(32)(0))
            return builder.shuffle_vector(one, ir.Constant(lanes, ir.Undefined), first)

        def chosen(word, then, otherwise):
            bits = builder.bitcast(
                builder.trunc(word, ir.IntType(_LANES)), ir.VectorType(ir.IntType(1), _LANES)
            )
            return builder.select(bits, then, otherwise)

        data = context.make_array(signature.args[0])(context, builder, out).data
        place = builder.bitcast(builder.gep(data, [at]), lanes.as_pointer())
        less = chosen(negative, every(builder.fneg(value)), ir.Constant(lanes, [0.0] * _LANES))
        more = chosen(positive, every(value), less)
        builder.store(builder.fadd(builder.load(place, align=8), more), place, align=8)
        return context.get_dummy_value()

    return signature, generate


@kernel
def add_learners(codes, trees, scores):
    """Add ``w h`` of every learner to the scores of its class.

    Parameters
    ----------
    codes : uint8 array of shape (n_features, n_rows)
    trees : ScoredTrees
    scores : float64 array of shape (n_classes, n_rows)
    """
    classes = trees.classes
    n_rows, n_classes = scores.shape[1], scores.shape[0]
    reached, in_a_row = np.empty(2 * trees.feature.shape[1] + 1, np.uint64), codes.reshape(codes.size)
    for first in range(0, n_rows, _ROWS):
        stop = min(first + _ROWS, n_rows)
        whole = stop - (stop - first) % _WORD
        for t in range(classes.shape[0]):
            if 0 <= classes[t] < n_classes:
                out = scores[classes[t]]
                for i in range(first, whole, _WORD):
                    _add_word(in_a_row, n_rows, i, trees, t, reached, out)
                for i in range(whole, stop):
                    _add_one(codes, i, trees, t, out)


@inlined_kernel
def _add_word(codes, n_rows, i, trees, t, reached, out):
    """Add the responses of tree t to the scores of `_WORD` samples from sample i on.

    `reached`, of shape (2 * n_nodes + 1,), is for the words of nodes, then of leaves.
    """
    feature, low, high, leaf = trees.feature, trees.low, trees.high, trees.leaf
    n_nodes = feature.shape[1]
    reached[0] = _ALL
    for k in range(n_nodes):
        above = reached[k] & range_word(codes, feature[t, k] * n_rows + i, low[t, k], high[t, k])
        reached[2 * k + 1] = reached[k] ^ above
        reached[2 * k + 2] = above
    positive = negative = np.uint64(0)
    for k in range(n_nodes + 1):
        if leaf[t, k] > 0:
            positive |= reached[n_nodes + k]
        elif leaf[t, k] < 0:
            negative |= reached[n_nodes + k]
    for lane in range(0, _WORD, _LANES):
        shift = np.uint64(lane)
        _add_signed(out, i + lane, positive >> shift, negative >> shift, trees.weights[t])


@inner_kernel
def _add_one(codes, i, trees, t, out):
    """Add the response of tree t to the score of sample i."""
    feature, low, high = trees.feature, trees.low, trees.high
    n_nodes = feature.shape[1]
    k = np.int64(0)
    while k < n_nodes:
        code = codes[feature[t, k], i]
        k = 2 * k + 1 + np.int64((code >= low[t, k]) & (code <= high[t, k]))
    out[i] += trees.weights[t] * trees.leaf[t, k - n_nodes]
