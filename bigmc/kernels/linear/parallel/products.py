# mypy: ignore-errors
"""A sample in row order times a matrix, and its outer product with a row, for some groups of classes.

Where there is an intercept (`constant`) it is one more feature, that of the last row of the matrix, and 1 in
every sample. Up to four groups of lanes go through the entries at once.
"""

from __future__ import annotations

import numpy as np

from bigmc.kernels.decorators import inner_kernel
from bigmc.kernels.linear.parallel.simd import LANES, outer_of, product_of

_EIGHT = np.uint64(LANES)
_ONE, _TWO, _FOUR = np.uint64(1), np.uint64(2), np.uint64(4)
#: The last bit of a row's mask stands for all the groups from there on.
LAST_BIT = np.uint64(63)
#: The mask of all groups.
EVERY_GROUP = ~np.uint64(0)

_product1, _product2, _product4 = product_of(1), product_of(2), product_of(4)
_outer1, _outer2, _outer4 = outer_of(1), outer_of(2), outer_of(4)
_square1, _square2, _square4 = outer_of(1, square=True), outer_of(2, square=True), outer_of(4, square=True)


@inner_kernel
def groups_of(mask, n_groups, groups):
    """List the groups of lanes whose bits are set; returns how many."""
    used = np.uint64(0)
    for q in range(n_groups):
        groups[used] = q * _EIGHT
        used += (mask >> min(q, LAST_BIT)) & _ONE
    return used


@inner_kernel
def row_product(rows, i, scale, matrix, groups, used, into):
    """Set the listed groups of `into` to ``scale * sum_k values[k] * matrix[slots[k]]`` and the intercept.

    The sum is over the entries of sample `i`; the first `used` of `groups` are listed.
    """
    start, stop = np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + _ONE])
    u = np.uint64(0)
    while u + _FOUR <= used:
        _product4(rows, (start, stop, u), scale, matrix, groups, into)
        u += _FOUR
    if u + _TWO <= used:
        _product2(rows, (start, stop, u), scale, matrix, groups, into)
        u += _TWO
    if u < used:
        _product1(rows, (start, stop, u), scale, matrix, groups, into)
    if rows.constant:
        add_groups(matrix.dtype.type(1), matrix[matrix.shape[0] - 1], groups, used, into)


@inner_kernel
def add_groups(factor, row, groups, used, into):
    """Add ``factor * row`` to the listed groups of `into`."""
    for u in range(used):
        for r in range(groups[u], groups[u] + _EIGHT):
            into[r] += factor * row[r]


@inner_kernel
def row_outer(rows, i, scale, residual, groups, used, out):
    """Add ``scale * values[k] * residual`` to ``out[slots[k]]`` for the entries k of sample i, in groups."""
    start, stop = np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + _ONE])
    u = np.uint64(0)
    while u + _FOUR <= used:
        _outer4(rows, (start, stop, u), scale, residual, groups, out)
        u += _FOUR
    if u + _TWO <= used:
        _outer2(rows, (start, stop, u), scale, residual, groups, out)
        u += _TWO
    if u < used:
        _outer1(rows, (start, stop, u), scale, residual, groups, out)


@inner_kernel
def row_outer_square(rows, i, scale, residual, groups, used, out):
    """`row_outer` with the squares of the values."""
    start, stop = np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + _ONE])
    u = np.uint64(0)
    while u + _FOUR <= used:
        _square4(rows, (start, stop, u), scale, residual, groups, out)
        u += _FOUR
    if u + _TWO <= used:
        _square2(rows, (start, stop, u), scale, residual, groups, out)
        u += _TWO
    if u < used:
        _square1(rows, (start, stop, u), scale, residual, groups, out)
