"""Labels of pandas, Arrow and numpy in memory."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from bigmc.errors import DataError
from bigmc.store.shards.plain_labels import plain_labels

LARGE = [2**53, 2**53 + 1, 2**53]
"""Floats would make one class of them."""


@pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]", "boolean", "UInt8"])
def test_nullable_types_become_those_of_numpy(dtype):
    values = [True, False, True] if dtype == "boolean" else [1, 2, 200] if dtype == "UInt8" else LARGE
    plain = plain_labels(pd.Series(values, dtype=dtype))
    assert plain.dtype.kind in "iub"
    assert plain.tolist() == values


def test_a_frame_of_one_column_stays_one_and_others_are_as_they_are():
    column = plain_labels(pd.DataFrame({"y": pd.array(LARGE, "Int64")}))
    assert column.tolist() == [[label] for label in LARGE]
    indicator = pd.DataFrame({"a": [0, 1], "b": [1, 1]})
    assert plain_labels(indicator) is indicator


@pytest.mark.parametrize(
    "labels",
    [
        ["a", "b", None],
        [0.5, 1.0, float("nan")],
        np.array([1.0, 2.0, np.nan]),
        np.array([["a"], ["b"], [None]], object),
        pd.Series([1, 2, None], dtype="Int64"),
        pd.DataFrame({"y": pd.array([1, 2, None], "Int64")}),
        pa.array(["a", "b", None]),
        [1, 2, pd.NA],
    ],
)
def test_missing_labels_are_named_by_row(labels):
    with pytest.raises(DataError, match="row 2: the label is missing"):
        plain_labels(labels)


@pytest.mark.parametrize(
    "labels", [["a", 1], np.array([0.5, 2.0]), np.array(["a", None])[:1], [[1, 2], [3]], ()]
)
def test_other_labels_are_as_they_are(labels):
    assert plain_labels(labels) is labels
