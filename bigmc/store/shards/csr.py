"""Samples in row order (CSR), made by readers and hashing, stored by the shard writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray


class Rows(NamedTuple):
    """A batch of samples in compressed row order.

    Sample ``i`` has the entries ``indptr[i]:indptr[i + 1]``. Features increase and are unique within a
    sample. `data` has the values as counted or read: neither weighted nor normalised.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    data: NDArray[Any]
    n_features: int

    @classmethod
    def of_dense(cls, values: NDArray[Any]) -> Rows:
        """Return the non-zero entries of a dense array."""
        stored = values != 0
        indptr = np.concatenate([[0], np.cumsum(stored.sum(axis=1, dtype=np.int64))])
        return cls(indptr, np.nonzero(stored)[1].astype(np.int32), values[stored], values.shape[1])

    @classmethod
    def of_matrix(cls, matrix: Any) -> Rows:
        """Return the entries of a sparse matrix, duplicates added up as in SciPy, or those of an array."""
        compressed = scipy.sparse.csr_array(matrix)
        if not compressed.has_canonical_format:
            if compressed is matrix or np.shares_memory(compressed.data, matrix.data):
                compressed = compressed.copy()
            compressed.sum_duplicates()
        indptr, indices = compressed.indptr.astype(np.int64), compressed.indices.astype(np.int32, copy=False)
        return cls(indptr, indices, compressed.data, int(compressed.shape[1]))

    @classmethod
    def of_feature(cls, index: int, values: NDArray[np.float64], n_features: int) -> Rows:
        """Return the values of one feature, shape (n_rows,), as rows; zeros are not stored."""
        stored = values != 0
        indptr = np.concatenate(([0], np.cumsum(stored))).astype(np.int64)
        return cls(indptr, np.full(indptr[-1], index, dtype=np.int32), values[stored], n_features)

    @property
    def matrix(self) -> scipy.sparse.csr_array:
        """The samples as a matrix of SciPy."""
        return scipy.sparse.csr_array((self.data, self.indices, self.indptr), (self.n_rows, self.n_features))

    @property
    def n_rows(self) -> int:
        """Number of samples."""
        return len(self.indptr) - 1

    def between(self, start: int, stop: int) -> Rows:
        """Return the samples ``start`` to ``stop``; their entries are not copied."""
        first, last = self.indptr[start], self.indptr[stop]
        indptr = self.indptr[start : stop + 1] - first
        return self._replace(indptr=indptr, indices=self.indices[first:last], data=self.data[first:last])

    def where(self, marked: NDArray[np.bool_]) -> Rows:
        """Return the samples that are marked in an array of shape (n_rows,)."""
        if marked.all():
            return self
        counts = np.diff(self.indptr)
        entries = np.repeat(marked, counts)
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts[marked])])
        first, last = self.indptr[0], self.indptr[-1]
        indices, data = self.indices[first:last], self.data[first:last]
        return self._replace(indptr=indptr, indices=indices[entries], data=data[entries])


def sum_of_rows(pieces: Sequence[Rows], n_features: int) -> Rows:
    """Return the sum of batches of the same samples; entries that cancel to zero stay stored."""
    if len(pieces) == 1:
        return pieces[0]._replace(n_features=n_features)
    n_rows = pieces[0].n_rows
    samples = np.concatenate([np.repeat(np.arange(n_rows), np.diff(p.indptr)) for p in pieces])
    indices = np.concatenate([p.indices for p in pieces])
    data = np.concatenate([p.data for p in pieces])
    wide = data.astype(np.int32) if data.dtype.kind == "i" else data.astype(np.float64)
    matrix = scipy.sparse.coo_array((wide, (samples, indices)), shape=(n_rows, n_features)).tocsr()
    return Rows(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data, n_features)
