"""The interface of all shards, on disk or in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class Shard(Protocol):
    """At most 65,536 samples of one split, in compressed columns.

    The stored values have the dtype int8, int16, int32, float32 or float64; `nbytes` counts files or
    arrays.
    """

    n_rows: int
    n_features: int
    nnz: int
    dtype: np.dtype[Any]
    split: str
    nbytes: int

    def indptr(self, lo: int, hi: int) -> NDArray[np.int64]:
        """Return the ``hi - lo + 1`` offsets of columns ``lo`` to ``hi``, counted from the first entry."""

    def read(
        self, start: int, stop: int, indices_out: NDArray[np.uint16] | None, data_out: NDArray[Any] | None
    ) -> None:
        """Decode the entries ``start`` to ``stop`` into the given buffers; a buffer of None is skipped.

        `indices_out` gets the row of each entry, `data_out` its value, converted to the dtype of the
        buffer. Thread-safe.
        """

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return ``label`` (int32), ``row_id`` (int64), ``norm`` (float32), ``entries`` (int32) and more.

        If labels are sets, ``label`` is a list of int32, see `bigmc.store.shards.label_sets`.
        ``norm`` is the Euclidean norm of the row's raw values, ``entries`` the number it stores.
        """
