"""The svmlight / libsvm format: feature indices by our scan, values by scikit-learn."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.ingestion.readers.base import Batch, Part, ScanOptions, Source, number
from bigmc.ingestion.readers.matrices import bad_entries, keep_matrix
from bigmc.ingestion.readers.text import Chunk, Layout, broken, cut, part_chunks, skip_mark
from bigmc.ingestion.rejects import OnBadRow, settle
from bigmc.kernels import records as kernels
from bigmc.store.csr import Rows

_LAYOUT = Layout(comment=ord("#"))
_WRONG = {
    kernels.HAS_QID: "query ids (qid:) are of ranking data, not of classification",
    kernels.NO_LABEL: "no label before the first feature",
    kernels.SEVERAL_LABELS: "several labels; a sample has one class",
    kernels.BAD_TOKEN: "an underscore in a number",
    kernels.BAD_INDEX: "a feature is not index:value with a whole number as index",
    kernels.HUGE_INDEX: "a feature index above 2147483646",
    kernels.NOT_INCREASING: "feature indices must increase, each at most once",
}
_BAD = sum(_WRONG)
_NONE = np.int64(1) << 62


def _describe(chunk: Chunk) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
    n = len(chunk.starts)
    smallest = np.empty(n, dtype=np.int64)
    largest = np.empty(n, dtype=np.int64)
    flags = np.empty(n, dtype=np.uint8)
    kernels.describe_svmlight(chunk.data, chunk.starts, chunk.ends, smallest, largest, flags)
    return smallest, largest, flags


class _Extent:
    """What the scan learns of all records: the extreme indices, and whether all labels are whole."""

    def __init__(self) -> None:
        self.smallest = int(_NONE)
        self.largest = -1
        self.whole_labels = True

    def look(self, chunk: Chunk) -> None:
        """Take in the records of a chunk; bad ones do not count."""
        smallest, largest, flags = _describe(chunk)
        fine = (flags & _BAD) == 0
        if (flags & kernels.HAS_QID).any():
            i = int(np.argmax((flags & kernels.HAS_QID) != 0))
            raise DataError(
                f"{chunk.path}:{chunk.lines[i]}: {_WRONG[kernels.HAS_QID]}", "remove the qid: tokens"
            )
        if fine.any():
            self.smallest = min(self.smallest, int(smallest[fine].min()))
            self.largest = max(self.largest, int(largest[fine].max()))
            self.whole_labels &= not bool((flags[fine] & kernels.FRACTIONAL_LABEL).any())


class SvmlightReader:
    """Reads svmlight files: one label, then increasing ``index:value`` pairs.

    Labels are int64 when every label of all sources is a whole number, else float64. Values are
    float64 and finite.
    """

    def schema(self, source: Source, options: ScanOptions) -> Any:
        """Return no columns: the file has features only."""
        return pa.schema([])

    def scan(self, sources: Sequence[Source], part_bytes: int, options: ScanOptions) -> list[Part]:
        """Cut each file, and find the number of features and the base of the indices over all."""
        extent = _Extent()
        parts: list[Part] = []
        for i, source in enumerate(sources):
            mark = skip_mark(source.path)
            parts += cut(source.path, "svmlight", i, _LAYOUT, mark, 1, part_bytes, extent.look)
        base = 1 - int(extent.smallest == 0 if options.zero_based is None else options.zero_based)
        found: dict[str, Any] = {
            "first_index": base,
            "n_features": options.n_features or max(extent.largest + 1 - base, 1),
            "whole_labels": extent.whole_labels,
        }
        return number([replace(part, options=found) for part in parts])

    def read(
        self,
        part: Part,
        source: Source | None,
        columns: Sequence[str] | None,
        batch_bytes: int,
        on_bad_row: OnBadRow,
    ) -> Iterator[Batch]:
        """Read a part; malformed records and values that are not finite are bad rows."""
        for first_row, chunk in part_chunks(part, _LAYOUT, batch_bytes):
            if len(chunk.starts):
                yield _batch(part, chunk, first_row, on_bad_row)


def _reasons(part: Part, chunk: Chunk) -> dict[int, str]:
    """Return what the index scan finds wrong, by record."""
    base, n_features = part.options["first_index"], part.options["n_features"]
    smallest, largest, flags = _describe(chunk)
    reasons: dict[int, str] = {}
    for i in np.flatnonzero((flags & _BAD) != 0):
        reasons[int(i)] = next(text for flag, text in _WRONG.items() if flags[i] & flag)
    for i in np.flatnonzero((smallest < base) | (largest - base >= n_features)):
        if smallest[i] < base:
            reason = "feature index 0, but indices count from 1"
        else:
            reason = f"feature index {largest[i]}, but there are {n_features} features"
        reasons.setdefault(int(i), reason)
    return reasons


def _batch(part: Part, chunk: Chunk, first_row: int, on_bad_row: OnBadRow) -> Batch:
    n = len(chunk.starts)
    reasons = _reasons(part, chunk)
    good = np.ones(n, dtype=np.bool_)
    good[list(reasons)] = False
    try:
        matrix, labels = _parse(part, chunk, good)
    except (ValueError, OverflowError):
        kept = np.flatnonzero(good)

        def attempt(lo: int, hi: int) -> Exception | None:
            some = np.zeros(n, dtype=np.bool_)
            some[kept[lo:hi]] = True
            try:
                _parse(part, chunk, some)
            except (ValueError, OverflowError) as error:
                return error
            return None

        for i, error in broken(attempt, len(kept)):
            reasons[int(kept[i])] = str(error)
            good[kept[i]] = False
        matrix, labels = _parse(part, chunk, good)
    kept = np.flatnonzero(good)
    finite = np.ones(len(kept), dtype=np.bool_)
    base = part.options["first_index"]
    for i, (feature, value) in bad_entries(matrix, len(kept), missing=False).items():
        finite[i] = False
        reasons[int(kept[i])] = f"feature {feature + base} is {value}"
    for at in np.flatnonzero(~np.isfinite(labels)).tolist():
        finite[at] = False
        reasons[int(kept[at])] = f"the label is {labels[at]}"
    kept, labels = kept[finite], labels[finite]
    return Batch(
        table=None,
        matrix=keep_matrix(matrix, finite),
        labels=pa.array(labels.astype(np.int64) if part.options["whole_labels"] else labels),
        row=first_row + kept,
        line=chunk.lines[kept],
        path=part.path,
        n_bytes=len(chunk.data),
        rejects=settle((chunk.reject(i, first_row, text) for i, text in reasons.items()), on_bad_row),
    )


def _parse(part: Part, chunk: Chunk, keep: NDArray[np.bool_]) -> tuple[Rows, NDArray[np.float64]]:
    """Parse the marked records, whose indices are known to fit."""
    from sklearn.datasets import load_svmlight_file  # a second to import: only when needed

    base, n_features = int(part.options["first_index"]), int(part.options["n_features"])
    if not keep.any():
        nothing = np.zeros(0, dtype=np.float64)
        return Rows(np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int32), nothing, n_features), nothing
    if keep.all():
        text: Any = chunk.data[: chunk.ends[-1]].tobytes()
    else:
        text = chunk.joined(keep)
    matrix, labels = load_svmlight_file(io.BytesIO(text), n_features=n_features + base, zero_based=True)
    if matrix.shape[0] != int(keep.sum()):
        raise DataError(
            f"{part.path}:{chunk.lines[0]}: {matrix.shape[0]} rows parsed, {int(keep.sum())} records counted",
            "please report this file; it is cut into records in two ways",
        )
    indices = (matrix.indices - base).astype(np.int32)
    return Rows(matrix.indptr.astype(np.int64), indices, matrix.data, n_features), labels
