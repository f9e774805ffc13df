"""The original labels of the class codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigmc.errors import DataError
from bigmc.lazy import LazyModule
from bigmc.store.files.arrow_file import arrow_file
from bigmc.store.files.atomic import replacing
from bigmc.store.files.layout import CLASSES, ClassesType, damaged

pq = LazyModule("pyarrow.parquet")

_ARROW = {"int64": pa.int64(), "string": pa.string(), "bool": pa.bool_(), "float": pa.float64()}
_NUMPY = {"int64": np.int64, "string": np.str_, "bool": np.bool_, "float": np.float64}
_KINDS: dict[str, ClassesType] = {
    "i": "int64",
    "u": "int64",
    "b": "bool",
    "f": "float",
    "U": "string",
    "O": "string",
    "T": "string",
}


def write_classes(path: Path, classes: NDArray[Any]) -> ClassesType:
    """Write classes.parquet of the dataset at `path` and return the type of the labels."""
    kind = _KINDS.get(classes.dtype.kind)
    try:
        if kind is None:
            raise TypeError
        labels = pa.array(classes.tolist(), _ARROW[kind])
    except (pa.ArrowException, OverflowError, TypeError):
        raise DataError(
            f"labels of type {classes.dtype} cannot be stored", "use integers, strings, booleans or floats"
        ) from None
    codes = pa.array(np.arange(len(classes), dtype=np.int32))
    with replacing(path / CLASSES) as file:
        pq.write_table(pa.table({"code": codes, "label": labels}), file, write_page_checksum=True)
    return kind


class ClassLabels(Protocol):
    """Labels by class code: an array, or those of a dataset on disk."""

    def __len__(self) -> int: ...

    def __getitem__(self, code: Any, /) -> Any: ...

    def tolist(self) -> list[Any]:
        """Return all labels."""


def read_classes(path: Path, kind: ClassesType) -> NDArray[Any]:
    """Return the labels of the dataset at `path` in the order of their codes."""
    file = path / CLASSES
    try:
        table = pq.ParquetFile(arrow_file(file), page_checksum_verification=True).read()
        codes, labels = table.column("code").to_numpy(), table.column("label")
    except (OSError, KeyError, pa.ArrowException) as error:
        raise damaged(file, f"cannot be read ({error})") from None
    plain = labels.type == _ARROW[kind] and not labels.null_count
    if not plain or not np.array_equal(codes, np.arange(len(codes))):
        raise damaged(file, f"does not hold labels of type {kind}")
    listed = labels.to_pylist()
    if len(set(listed)) < len(listed):
        raise damaged(file, "has a label twice")
    return np.array(listed, dtype=_NUMPY[kind])
