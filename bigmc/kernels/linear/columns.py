# mypy: disable-error-code="no-untyped-def, no-untyped-call"
"""Copying single columns of a block."""

from __future__ import annotations

from bigmc.kernels.copies import copy_to
from bigmc.kernels.decorators import kernel


@kernel
def gather_columns(columns, indptr, indices, data, indptr_out, indices_out, data_out):
    """Copy columns of a block into a smaller block of these columns only.

    Parameters
    ----------
    columns : int64 array of shape (n_columns,)
        Increasing positions in the block.
    indptr, indices, data
        The block.
    indptr_out : int64 array of shape (n_shards, n_columns + 1)
    indices_out, data_out : arrays of shape (entries of the columns,)
        Filled, shard after shard.
    """
    to = 0
    for s in range(indptr.shape[0]):
        for p in range(columns.shape[0]):
            indptr_out[s, p] = to
            start = indptr[s, columns[p]]
            size = indptr[s, columns[p] + 1] - start
            copy_to(indices[start : start + size], indices_out[to:])
            copy_to(data[start : start + size], data_out[to:])
            to += size
        indptr_out[s, columns.shape[0]] = to
