"""The svmlight / libsvm format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bigmc.errors import DataError
from bigmc.ingestion.readers.base import Part, ReadHints
from bigmc.ingestion.readers.chunks import Chunk, Layout
from bigmc.ingestion.readers.exact import EXACT_INTEGERS, is_exact
from bigmc.ingestion.readers.matrices import bad_entries
from bigmc.ingestion.readers.text import Parsed, Survey, TextFormat
from bigmc.ingestion.sources.source import Source
from bigmc.kernels import svmlight as kernels
from bigmc.kernels.svmlight_survey import Extent, find_wider
from bigmc.store.shards.csr import Rows

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


def _undescribed(n_records: int) -> kernels.Description:
    n = n_records
    return kernels.Description(np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.uint8))


class _RangeSurvey(Survey):
    """The smallest and largest index of all records, and whether all labels are integers."""

    def __init__(self, hints: ReadHints) -> None:
        super().__init__()
        self._hints = hints
        self._known = Extent(int(_NONE), -1, True)

    def look(self, chunk: Chunk) -> None:
        """Add the good records of a chunk."""
        wider = np.empty(len(chunk.starts), np.int64)
        wider = wider[: find_wider(chunk.data, chunk.starts, chunk.ends, self._known, wider)]
        smallest, largest, flags = described = _undescribed(len(wider))
        kernels.describe_svmlight(chunk.data, chunk.starts[wider], chunk.ends[wider], described)
        fine = (flags & _BAD) == 0
        if (flags & kernels.HAS_QID).any():
            i = wider[np.argmax((flags & kernels.HAS_QID) != 0)]
            raise DataError(
                f"{chunk.path}:{chunk.lines[i]}: {_WRONG[kernels.HAS_QID]}", "remove the qid: tokens"
            )
        if fine.any():
            self._known = Extent(
                min(self._known.smallest, int(smallest[fine].min())),
                max(self._known.largest, int(largest[fine].max())),
                self._known.whole_labels and not (flags[fine] & kernels.FRACTIONAL_LABEL).any(),
            )

    @property
    def options(self) -> Mapping[str, Any]:
        """Return the base of the indices, the number of features, and whether labels are whole."""
        zero_based = self._hints.zero_based
        base = 1 - int(self._known.smallest == 0 if zero_based is None else zero_based)
        return {
            "first_index": base,
            "n_features": self._hints.n_features or max(self._known.largest + 1 - base, 1),
            "whole_labels": self._known.whole_labels,
        }


class SvmlightFormat(TextFormat):
    """Files of one label, then increasing ``index:value`` pairs, a sample a line.

    Labels are int64 when every label of all sources is a whole number, else float64. Values are
    float64 and finite; an integer that float64 does not hold makes its row bad.
    """

    layout = Layout(comment=ord("#"))

    def schema(self, source: Source, hints: ReadHints) -> pa.Schema:
        """Return no columns: the file has features only."""
        return pa.schema([])

    def survey(self, sources: Sequence[Source], hints: ReadHints) -> Survey:
        """Return what finds the number of features and the base of the indices over all sources."""
        return _RangeSurvey(hints)

    def parse(self, part: Part, chunk: Chunk, columns: Sequence[str] | None) -> Parsed:
        """Parse a chunk; malformed records and those with values that are not finite are not."""
        parsed = _parse(part, chunk)
        parsed = parsed.without(_unusable(part, chunk, parsed))
        if part.options["whole_labels"] and parsed.labels is not None:
            parsed.labels = parsed.labels.astype(np.int64)
        return parsed


def _unusable(part: Part, chunk: Chunk, parsed: Parsed) -> dict[int, str]:
    """Return the parsed records whose numbers cannot be stored, by position, with the reason."""
    matrix, labels = parsed.matrix, parsed.labels
    assert matrix is not None
    assert labels is not None
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


def _reasons(part: Part, described: kernels.Description) -> dict[int, str]:
    """Return what is wrong with the indices of records, by record."""
    base, n_features = part.options["first_index"], part.options["n_features"]
    smallest, largest, flags = described
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


def _parse(part: Part, chunk: Chunk) -> Parsed:
    """Parse the records of a chunk; those with wrong indices, and what Python's float refuses, are not."""
    base, n_features = int(part.options["first_index"]), int(part.options["n_features"])
    n, most = len(chunk.starts), int((chunk.ends - chunk.starts).sum()) // 3
    indptr, labels, values = np.empty(n + 1, np.int64), np.empty(n), np.empty(most)
    record, odd = np.empty(n, np.int64), np.empty(n, np.bool_)
    rows = kernels.SvmlightRows(indptr, np.empty(most, np.int32), values, labels, record, odd)
    described = _undescribed(n)
    kept = kernels.parse_svmlight(chunk.data, chunk.starts, chunk.ends, base, n_features, described, rows)
    wrong: dict[int, str] = {}
    for i in np.flatnonzero(odd[:kept]).tolist():
        label, *entries = chunk.raw(int(record[i])).split(b"#")[0].split()
        try:
            labels[i] = float(label)
            values[indptr[i] : indptr[i + 1]] = [float(entry.partition(b":")[2]) for entry in entries]
        except ValueError as error:
            wrong[i] = str(error)
    nnz = int(indptr[kept])
    matrix = Rows(indptr[: kept + 1], rows.indices[:nnz].copy(), values[:nnz].copy(), n_features)
    parsed = Parsed(record[:kept], matrix=matrix, labels=labels[:kept], reasons=_reasons(part, described))
    return parsed.without(wrong)
