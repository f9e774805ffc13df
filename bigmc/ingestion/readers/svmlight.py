"""The svmlight / libsvm format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.ingestion.exact import EXACT_INTEGERS, is_exact
from bigmc.ingestion.readers.base import Part, ReadHints, Source
from bigmc.ingestion.readers.chunks import Chunk, Layout, Span
from bigmc.ingestion.readers.matrices import bad_entries
from bigmc.ingestion.readers.streams import skip_mark
from bigmc.ingestion.readers.text import Beginning, Parsed, Survey, TextFormat
from bigmc.kernels import svmlight as kernels
from bigmc.store.csr import Rows

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


class _Extent(Survey):
    """The extreme indices of all records, and whether all labels are whole."""

    def __init__(self, hints: ReadHints) -> None:
        self._hints = hints
        self._smallest = int(_NONE)
        self._largest = -1
        self._whole_labels = True

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
            self._smallest = min(self._smallest, int(smallest[fine].min()))
            self._largest = max(self._largest, int(largest[fine].max()))
            self._whole_labels &= not bool((flags[fine] & kernels.FRACTIONAL_LABEL).any())

    @property
    def options(self) -> Mapping[str, Any]:
        """Return the base of the indices, the number of features, and whether labels are whole."""
        zero_based = self._hints.zero_based
        base = 1 - int(self._smallest == 0 if zero_based is None else zero_based)
        return {
            "first_index": base,
            "n_features": self._hints.n_features or max(self._largest + 1 - base, 1),
            "whole_labels": self._whole_labels,
        }


class SvmlightFormat(TextFormat):
    """Files of one label, then increasing ``index:value`` pairs, a sample a line.

    Labels are int64 when every label of all sources is a whole number, else float64. Values are
    float64 and finite; an integer that float64 does not hold makes its row bad.
    """

    name = "svmlight"
    layout = Layout(comment=ord("#"))

    def schema(self, source: Source, hints: ReadHints) -> pa.Schema:
        """Return no columns: the file has features only."""
        return pa.schema([])

    def begin(self, source: Source) -> Beginning:
        """Return where the lines are: behind a byte order mark."""
        return Beginning(Span(skip_mark(source), None, 1), {})

    def survey(self, sources: Sequence[Source], hints: ReadHints) -> Survey:
        """Return what finds the number of features and the base of the indices over all sources."""
        return _Extent(hints)

    def parse(self, part: Part, chunk: Chunk, columns: Sequence[str] | None) -> Parsed:
        """Parse a chunk; malformed records and those with values that are not finite are not."""
        n = len(chunk.starts)
        reasons = _reasons(part, chunk)
        good = np.ones(n, dtype=np.bool_)
        good[list(reasons)] = False
        parsed = _parse(part, chunk, good, reasons)
        parsed = parsed.without(_unusable(part, chunk, parsed))
        if part.options["whole_labels"] and parsed.labels is not None:
            parsed.labels = parsed.labels.astype(np.int64)
        return parsed


def _unusable(part: Part, chunk: Chunk, parsed: Parsed) -> dict[int, str]:
    """Return the parsed records whose numbers cannot be stored, by position, with the reason."""
    matrix, labels = parsed.matrix, parsed.labels
    if matrix is None or labels is None:
        raise ValueError("svmlight records have features and labels")
    base = part.options["first_index"]
    bad = bad_entries(matrix, len(labels), "refuse").items()
    wrong = {i: f"feature {feature + base} is {value}" for i, (feature, value) in bad}
    large = np.flatnonzero(np.abs(matrix.data) >= EXACT_INTEGERS)
    for i in np.unique(np.searchsorted(matrix.indptr, large, side="right") - 1).tolist():
        for token in chunk.raw(int(parsed.kept[i])).split(b"#")[0].split()[1:]:
            text = token.partition(b":")[2].decode("ascii", "replace")
            if not is_exact(text):
                wrong.setdefault(i, f"the value {text} is not exact as a 64-bit float")
    for i in np.flatnonzero(~np.isfinite(labels)).tolist():
        wrong[i] = f"the label is {labels[i]}"
    return wrong


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


def _parse(part: Part, chunk: Chunk, keep: NDArray[np.bool_], reasons: dict[int, str]) -> Parsed:
    """Parse the marked records, whose indices are known to fit; the others have their reasons."""
    kept = np.flatnonzero(keep)
    starts, ends = chunk.starts[kept], chunk.ends[kept]
    n_rows, most = len(kept), int((ends - starts).sum()) // 3
    rows = kernels.SvmlightRows(
        np.empty(n_rows + 1, np.int64), np.empty(most, np.int32), np.empty(most), np.empty(n_rows)
    )
    odd = np.empty(n_rows, np.bool_)
    kernels.parse_svmlight(chunk.data, starts, ends, int(part.options["first_index"]), rows, odd)
    wrong: dict[int, str] = {}
    for i in np.flatnonzero(odd).tolist():
        label, *entries = chunk.raw(int(kept[i])).split(b"#")[0].split()
        try:
            rows.labels[i] = float(label)
            values = [float(entry.partition(b":")[2]) for entry in entries]
            rows.values[rows.indptr[i] : rows.indptr[i + 1]] = values
        except ValueError as error:
            wrong[i] = str(error)
    n = int(rows.indptr[n_rows])
    matrix = Rows(
        rows.indptr, rows.indices[:n].copy(), rows.values[:n].copy(), int(part.options["n_features"])
    )
    return Parsed(kept, matrix=matrix, labels=rows.labels, reasons=reasons).without(wrong)
