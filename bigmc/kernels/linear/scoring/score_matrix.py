# mypy: disable-error-code="no-untyped-def, no-untyped-call"
"""Sums over the score matrix, and the score matrix itself as a product of samples and weights."""

from __future__ import annotations

import numpy as np

from bigmc.kernels.decorators import kernel


@kernel
def add_columns(columns, shard, row_scale, column_scale, coef, rows, scores):
    """Add ``x_ij * coef[p]`` for the given columns of one shard to its scores.

    Parameters
    ----------
    columns : int64 array of shape (n_columns,)
        Columns of the block, in the order they are added.
    shard : tuple
        ``(indptr, indices, data)``: offsets of its columns, and the entries of the block.
    row_scale : array of shape (rows of the shard,)
    column_scale : float64 array of shape (n_columns,)
    coef : float64 array of shape (n_columns, width)
    rows : tuple of int
        First of the rows that are added to, and the one after the last.
    scores : array of shape (rows of the shard, width)
        Changed in place.
    """
    indptr, indices, data = shard
    number = scores.dtype.type
    first, stop = np.uint64(rows[0]), np.uint64(rows[1])
    weights = np.empty(scores.shape[1], scores.dtype)
    for p in range(columns.shape[0]):
        for r in range(weights.shape[0]):
            weights[r] = column_scale[p] * coef[p, r]
        for k in range(np.uint64(indptr[columns[p]]), np.uint64(indptr[columns[p] + 1])):
            i = np.uint64(indices[k])
            if i < first or i >= stop:
                continue
            value = number(data[k]) * row_scale[i]
            row = scores[i]
            for r in range(weights.shape[0]):
                row[r] += value * weights[r]


@kernel
def fill_scores(intercept, pad, scores):
    """Set every row to the intercept, and the pads after it to `pad`."""
    for i in range(scores.shape[0]):
        for r in range(scores.shape[1]):
            scores[i, r] = intercept[r] if r < intercept.shape[0] else pad


@kernel
def shift_scores(step, scores):
    """Add `step` to every row; the pads stay."""
    for i in range(scores.shape[0]):
        for r in range(step.shape[0]):
            scores[i, r] += step[r]


@kernel
def class_margins(scores, labels, weights, margins, squares, active):
    """Add up the positive margins ``m_ir = max(1 - s_iy + s_ir, 0)`` by own class and other class.

    Parameters
    ----------
    scores : array of shape (n_samples, width)
    labels : int32 array of shape (n_samples,)
    weights : float64 array of shape (n_samples,), or empty for ones
    margins, squares, active : float64 arrays of shape (n_classes, n_classes)
        ``sum w m``, ``sum w m²`` and ``sum w [m > 0]`` over the samples of class ``c`` (row) for the
        class ``r`` (column) are added; the diagonal stays as it is.
    """
    n_classes = margins.shape[0]
    one = scores.dtype.type(1)
    weight = 1.0
    for i in range(scores.shape[0]):
        c = labels[i]
        if weights.shape[0]:
            weight = weights[i]
        row = scores[i]
        shift = one - row[c]
        for r in range(n_classes):
            margin = shift + row[r]
            if margin > 0 and r != c:
                wide = np.float64(margin)
                margins[c, r] += weight * wide
                squares[c, r] += weight * wide * wide
                active[c, r] += weight
