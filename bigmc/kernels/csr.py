"""Products of a CSR matrix with a dense one, into existing arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigmc.kernels.decorators import kernel


class RowMatrix(NamedTuple):
    """A sparse matrix by its rows, as SciPy's csr arrays are."""

    indptr: NDArray[Any]
    indices: NDArray[Any]
    data: NDArray[np.floating]


@kernel
def rows_times(matrix: RowMatrix, dense: NDArray[np.floating], out: NDArray[np.floating]) -> None:
    """Overwrite `out`, of shape (n_rows, width), with the product of the matrix and `dense`."""
    for i in range(out.shape[0]):
        out[i, :] = 0.0
        for k in range(matrix.indptr[i], matrix.indptr[i + 1]):
            value = matrix.data[k]
            row = dense[matrix.indices[k]]
            for c in range(out.shape[1]):
                out[i, c] += value * row[c]


@kernel
def columns_times(matrix: RowMatrix, dense: NDArray[np.floating], out: NDArray[np.floating]) -> None:
    """Overwrite `out`, of shape (n_columns, width), with the product of the transposed matrix and `dense`."""
    out[:] = 0.0
    for i in range(dense.shape[0]):
        for k in range(matrix.indptr[i], matrix.indptr[i + 1]):
            value = matrix.data[k]
            row = out[matrix.indices[k]]
            for c in range(out.shape[1]):
                row[c] += value * dense[i, c]
