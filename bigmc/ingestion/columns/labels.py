"""Convert the values of a label column to class codes, first within a part, then for the dataset.

A column of lists has a set of labels for every sample, possibly empty; duplicates count once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.ingestion.columns.known_labels import KnownLabels
from bigmc.ingestion.columns.number_columns import null_mask
from bigmc.ingestion.readers.utf8 import is_string
from bigmc.lazy import LazyModule
from bigmc.options.label_kind import LabelKind
from bigmc.store.shards.label_sets import is_sets, set_column

pc = LazyModule("pyarrow.compute")

MISSING = "the label is missing"
MISSING_IN_SET = "the label or one of its list is missing ([] stands for no labels)"
NUL_AT_END = "the label ends with a NUL character, which classes cannot"
NO_LABELS = "[]"
"""Text of an empty set where labels are separated, as in predictions in CSV: an empty text may be missing."""


def find_missing(labels: pa.Array) -> NDArray[np.bool_]:
    """Return which labels are missing: null, NaN, an empty text, or a list with one of these."""
    if is_sets(labels.type):
        return null_mask(labels) | _sets_with(find_missing, labels)
    if pa.types.is_dictionary(labels.type):
        return find_missing(labels.dictionary_decode())
    if is_string(labels.type):
        return np.asarray(pc.equal(labels, "").fill_null(True).to_numpy(zero_copy_only=False))
    return null_mask(labels)


def find_nul_at_end(labels: pa.Array) -> NDArray[np.bool_]:
    """Return which labels end with a NUL character, which NumPy drops: it would be another label."""
    if is_sets(labels.type):
        return _sets_with(find_nul_at_end, labels)
    if pa.types.is_dictionary(labels.type):
        return find_nul_at_end(labels.dictionary_decode())
    if not is_string(labels.type):
        return np.zeros(len(labels), dtype=bool)
    return np.asarray(pc.ends_with(labels, "\0").fill_null(False).to_numpy(zero_copy_only=False))


def _sets_with(find: Callable[[pa.Array], NDArray[np.bool_]], labels: pa.Array) -> NDArray[np.bool_]:
    """Return which sets have a label that a function finds."""
    found = np.zeros(len(labels), dtype=bool)
    found[np.asarray(pc.list_parent_indices(labels))[find(labels.flatten())]] = True
    return found


def plain(labels: pa.Array) -> pa.Array:
    """Return labels as int64, float64, bool or string.

    Dates and times are the texts that they are in CSV, by ISO 8601, a time at midnight without a zone just
    its date, as pandas writes them; decimal numbers with places after the point are texts too. `DataError` if
    the type of the column cannot be a label, such as a list or a time of day.
    """
    kind = labels.type
    if pa.types.is_dictionary(kind):
        return plain(labels.dictionary_decode())
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _texts_of_times(labels)
    if pa.types.is_decimal(kind) and kind.scale > 0:
        return pa.array([str(value) for value in labels.to_pylist()], pa.string())
    for is_kind, target in (
        (pa.types.is_boolean, pa.bool_()),
        (pa.types.is_integer, pa.int64()),
        (pa.types.is_decimal, pa.int64()),
        (pa.types.is_floating, pa.float64()),
        (pa.types.is_string, pa.string()),
        (pa.types.is_large_string, pa.string()),
        (pa.types.is_null, pa.string()),
    ):
        if is_kind(kind):
            try:
                return labels.cast(target)
            except pa.ArrowInvalid as error:
                raise DataError(
                    f"labels of type {kind}: {error}", "use labels below 2**63, or texts"
                ) from None
    raise DataError(
        f"the label column has type {kind}, which cannot name a class",
        "give texts, numbers, booleans or dates",
    )


def _texts_of_times(labels: pa.Array) -> pa.Array:
    zone = labels.type.tz if pa.types.is_timestamp(labels.type) else None
    try:
        values = labels.cast(pa.timestamp("us", zone)).to_pylist()
    except pa.ArrowInvalid as error:  # nanoseconds
        raise DataError(f"labels of type {labels.type}: {error}", "round them to microseconds") from None
    texts = [str(value) for value in values]
    if zone is None:
        texts = [text.removesuffix(" 00:00:00") for text in texts]
    return pa.array(texts, pa.string())


LABEL_BYTES = 330
"""Bytes for each distinct label besides twice its text: an object, in a dictionary and a sorted list."""


def label_cost(value: object) -> int:
    """Return the bytes of a distinct label while the labels of a dataset are collected."""
    return LABEL_BYTES + 2 * (len(value) if isinstance(value, str) else 8)


class TooManyLabels(Exception):
    """The distinct labels of a part do not fit into their share of memory."""


class LabelCoder:
    """Number the labels of one part in the order of their first appearance.

    They may take `most_bytes` of memory, as computed by `label_cost`. `sets` says whether labels are sets;
    None before the first label.
    """

    def __init__(self, most_bytes: int = 1 << 62) -> None:
        self._codes: dict[object, int] = {}
        self._bytes_left = most_bytes
        self._n_charged = 0
        self.sets: bool | None = None

    @property
    def values(self) -> list[object]:
        """Labels seen, by code."""
        return list(self._codes)

    def encode(self, labels: pa.Array) -> pa.Array:
        """Return the codes of labels without missing ones: int32, or lists of int32 for sets."""
        if not is_sets(labels.type):
            self.sets = False
            return pa.array(self._encode(labels))
        self.sets = True
        rows = np.asarray(pc.list_parent_indices(labels))
        return set_column(rows, self._encode(labels.flatten()), len(labels))

    def _encode(self, labels: pa.Array) -> NDArray[np.int32]:
        encoded = plain(labels).dictionary_encode()
        codes = [self._code(value) for value in encoded.dictionary.to_pylist()]
        positions = np.asarray(encoded.indices)
        return np.array(codes, dtype=np.int32)[positions] if codes else np.empty(0, dtype=np.int32)

    def _code(self, value: object) -> int:
        code = self._codes.setdefault(value, len(self._codes))
        if code == len(self._codes) - 1 and code >= self._n_charged:
            self._n_charged += 1
            self._bytes_left -= label_cost(value)
            if self._bytes_left < 0:
                raise TooManyLabels
        return code


def split_labels(labels: pa.Array, separator: str) -> pa.Array:
    """Split texts at the separator into lists of labels; `NO_LABELS` becomes an empty list, lists stay.

    `DataError` if the labels are neither texts nor lists.
    """
    if is_sets(labels.type):
        return labels
    if not is_string(labels.type):
        raise DataError(
            f"the label column has type {labels.type}, not text, so --label-separator cannot split it",
            "leave --label-separator out",
        )
    sets = pc.split_pattern(labels, separator)
    return pc.if_else(pc.equal(labels, NO_LABELS), pa.scalar([], sets.type), sets)


def agree_on_sets(parts: Iterable[bool | None]) -> bool:
    """Return whether labels are sets, given whether those of each part are; None for a part without rows.

    `DataError` if some parts have lists and others one label per row.
    """
    seen = {sets for sets in parts if sets is not None}
    if len(seen) > 1:
        raise DataError("some rows have a list of labels and others one label", "give every row a list")
    return True in seen


class LabelTypes(Enum):
    """What determines the type of labels: the format of the data or, in a text format, their spelling."""

    GIVEN = "given"
    GUESSED = "guessed"


def merge_classes(
    parts: Iterable[list[object]],
    written: LabelTypes,
    n_set_aside: int = 0,
    kind: LabelKind = LabelKind.ONE,
) -> list[object]:
    """Return the sorted classes of a dataset from the labels of its parts.

    In a text format, labels become integers if all are spelled exactly like integers. `DataError` if the
    labels have several types, or there are fewer than two; it mentions the bad rows that were set aside,
    whose labels are not among them.
    """
    labels = {value for part in parts for value in part}
    kinds = sorted({type(value).__name__ for value in labels})
    if len(kinds) > 1:
        if set(kinds) == {"int", "float"}:
            labels = {float(value) for value in labels}  # type: ignore[arg-type]
        else:
            raise DataError(
                f"labels are of several types ({', '.join(kinds)})", "write all labels as one type"
            )
    if len(labels) < 2:
        seen = f"only the class {next(iter(labels))!r}" if labels else "no class at all"
        cure = "a classifier needs rows of at least two classes"
        if kind is LabelKind.SET:
            seen = (
                f"sets of one label only, {next(iter(labels))!r}" if labels else "empty sets of labels only"
            )
            cure = "where a row has a label or not, give a column with one of two labels for each row"
        if n_set_aside:
            seen += f"; {n_set_aside:,} bad rows were set aside"
            cure += "; leave out --on-bad-row quarantine to see what is wrong with the first"
        raise DataError(f"the data has {seen}", cure)
    if written is LabelTypes.GUESSED and all(_is_integer_text(value) for value in labels):
        labels = {int(value) for value in labels}  # type: ignore[call-overload]
    if written is LabelTypes.GUESSED and all(
        isinstance(value, float) and value.is_integer() for value in labels
    ):
        labels = {int(value) for value in labels}  # type: ignore[call-overload]
    return sorted(labels)  # type: ignore[type-var]


def extend_classes(classes: list[object], parts: Iterable[list[object]]) -> list[object]:
    """Return the classes of a dataset, which keep their codes, and then the sorted new ones of parts.

    A label that means one of the classes is that one, whatever its type (`KnownLabels`). `DataError` if a
    label has another type than the classes.
    """
    known = KnownLabels(classes, "dataset's labels")
    labels = (known.label(value) for part in parts for value in part)
    new = {label for label in labels if label not in known.codes}
    return [*classes, *sorted(new)]  # type: ignore[type-var]


def recode(locals: Iterable[list[object]], classes: list[object]) -> Iterator[NDArray[np.int32]]:
    """Yield the codes of the labels of each part among the classes of the dataset."""
    known = KnownLabels(classes, "dataset's labels")
    for local in locals:
        yield np.array([known.codes[known.label(value)] for value in local], np.int32)


def _is_integer_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return str(int(value)) == value and abs(int(value)) < 2**63
    except ValueError:
        return False
