"""Products of ψ of the working rows with coefficients and with distributions, as every step makes them.

Arrays of this size made anew in every step would cost more time, in the operating system's kernel, than what
is computed with them: the results are written to the same arrays again and again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from bigmc.kernels.csr import RowMatrix, columns_times, rows_times


class Products:
    """ψ of the working rows, dense or csr, of shape (n_rows, n_psi), and space for its products."""

    def __init__(self, matrix: Any, n_classes: int) -> None:
        n_rows, n_psi = matrix.shape
        self._matrix = matrix
        self._rows = (
            RowMatrix(matrix.indptr, matrix.indices, matrix.data) if scipy.sparse.issparse(matrix) else None
        )
        self._coef = np.empty((n_psi, n_classes), matrix.dtype)
        self._moments = np.empty((n_psi, n_classes), matrix.dtype)
        self._dual = np.empty((n_rows, n_classes), matrix.dtype)
        self._scores = np.empty((n_rows, n_classes), matrix.dtype)

    def scores(self, coef: NDArray[np.float64], scale: NDArray[np.float64]) -> NDArray[np.floating]:
        """Return ``ψ (scale coef)``, shape (n_rows, n_classes), which the next call overwrites."""
        np.multiply(scale, coef, out=self._coef, casting="same_kind")
        if self._rows is not None:
            rows_times(self._rows, self._coef, self._scores)
        else:
            np.matmul(self._matrix, self._coef, out=self._scores)
        return self._scores

    def moments(self, dual: NDArray[np.float64]) -> NDArray[np.floating]:
        """Return ``ψᵀ dual``, shape (n_psi, n_classes), which the next call overwrites."""
        self._dual[:] = dual
        if self._rows is not None:
            columns_times(self._rows, self._dual, self._moments)
        else:
            np.matmul(self._matrix.T, self._dual, out=self._moments)
        return self._moments
