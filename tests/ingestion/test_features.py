import decimal
import re

import numpy as np
import pyarrow as pa
import pytest
from sklearn.feature_extraction import FeatureHasher

from bigmc.errors import DataError
from bigmc.ingestion.columns.features import FeatureSpec
from bigmc.ingestion.hashing.hasher import TextHasher
from bigmc.store.shards.csr import Rows, sum_of_rows


def batch(**columns) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_specification_survives_json():
    spec = FeatureSpec(("t",), ("c",), ("n",), ("d", "e"), TextHasher(hash_bits=9, ngrams=(1, 3)))
    assert FeatureSpec.from_dict(spec.to_dict()) == spec
    assert spec.n_features == 512 + 2
    assert spec.columns == ("t", "c", "n", "d", "e")
    dense = FeatureSpec(dense=("d", "e"))
    assert dense.to_dict()["columns"] == ["d", "e"]
    assert FeatureSpec.from_dict(dense.to_dict()) == dense
    assert "columns" not in spec.to_dict()


def test_bad_rows_and_their_reasons():
    spec = FeatureSpec(("t",), ("c",), ("n",), ("d",), TextHasher(hash_bits=4))
    table = batch(
        t=["a", None, "b", "c", "d", "e"],
        c=["x", "x", None, "x", "x", "x"],
        n=["1", "2", "3", "four", "5", " 6 "],
        d=[1.0, 2.0, 3.0, 4.0, float("inf"), None],
    )
    assert spec.find_bad(table) == {
        1: "column 't' is missing",
        2: "column 'c' is missing",
        3: "column 'n' is not a number: 'four'",
        4: "column 'd' is inf",
        5: "column 'd' is missing",
    }


@pytest.mark.parametrize("number", [[1, 0, -3], [1.5, 0.0, -2.25], ["1e3", " 0", "-7"], [True, False, True]])
def test_numbers_of_any_type_equal_feature_hasher(number):
    spec = FeatureSpec(numeric=("n",), hasher=TextHasher(hash_bits=5))
    rows = spec.transform(batch(n=number))
    expected = FeatureHasher(32).transform([{"n": float(value)} for value in number])
    np.testing.assert_array_equal(rows.indptr, expected.indptr)
    np.testing.assert_array_equal(rows.indices, expected.indices)
    np.testing.assert_array_equal(rows.data, expected.data)


@pytest.mark.parametrize("values", [["a", "b", "a"], [1, 2, 1], [True, False, True]])
def test_categories_of_any_type_equal_feature_hasher(values):
    spec = FeatureSpec(categorical=("c",), hasher=TextHasher(hash_bits=5))
    rows = spec.transform(batch(c=values))
    expected = FeatureHasher(32).transform([{"c": str(value)} for value in values])
    np.testing.assert_array_equal(rows.indices, expected.indices)
    np.testing.assert_array_equal(rows.data, expected.data)


@pytest.mark.parametrize(
    ("spec", "column", "option"),
    [
        (FeatureSpec(text=("x",), hasher=TextHasher()), pa.array([1, 2]), "--numeric"),
        (FeatureSpec(dense=("x",)), pa.array([[1], [2]]), "name it with --vector"),
        (FeatureSpec(dense=("x",)), pa.array([["a"], []]), "make it a column of texts or numbers"),
        (FeatureSpec(dense=("x",)), pa.array([1, 2], pa.timestamp("s")), "--date or --categorical"),
        (FeatureSpec(categorical=("x",), hasher=TextHasher()), pa.array([[1], [2]]), "name it with --vector"),
    ],
)
def test_types_that_do_not_fit(spec, column, option):
    with pytest.raises(DataError, match=f"'x' has type .*{option}"):
        spec.find_bad(batch(x=column))


def test_sum_of_rows_keeps_what_cancels():
    indptr = np.array([0, 1, 2])
    one = Rows(indptr, np.array([3, 0], np.int32), np.array([1, 2], np.int16), 4)
    other = Rows(indptr, np.array([3, 1], np.int32), np.array([-1, 32_767], np.int16), 4)
    total = sum_of_rows([one, other, other], 6)
    assert total.n_features == 6
    assert total.indptr.tolist() == [0, 1, 3]
    assert total.indices.tolist() == [3, 0, 1]
    assert total.data.tolist() == [-1, 2, 65_534]
    assert sum_of_rows([one, one._replace(data=-one.data)], 4).data.tolist() == [0, 0]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**53, 2**53 + 1, 2**53 + 2, None]),
        pa.array([2**53, 2**53 + 1, 2**63, None], pa.uint64()),
        pa.array(["9007199254740992", "9007199254740993", "1e300", None]),
        pa.array([decimal.Decimal(2**53), decimal.Decimal(2**53 + 1), decimal.Decimal("0.1"), None]),
    ],
    ids=["int64", "uint64", "text", "decimal"],
)
def test_an_integer_that_float64_does_not_hold_makes_its_row_bad(column):
    features = FeatureSpec(dense=("x",), missing=True)
    batch = pa.RecordBatch.from_arrays([column], names=["x"])
    bad = features.find_bad(batch)
    assert list(bad) == [1]
    assert re.fullmatch(r"column 'x' is 9007199254740993(\.0)?, which is not exact as a 64-bit float", bad[1])
    good = batch.take([0, 2])
    expected = [float(v) for v in good.column("x").to_pylist()]
    assert features.transform(good)[:, 0].tolist() == expected


def test_bad_rows_are_found_again_in_columns_that_were_read_before():
    """Columns of numbers alone are read many at a time; the others tell their bad rows each time."""
    table = pa.RecordBatch.from_pydict(
        {"a": ["1", "2"], "b": ["", "3"], "c": ["x", "4"], "d": ["1e999", "5"]}
    )
    spec = FeatureSpec(dense=("a", "b", "c", "d"))
    numbers = spec.read_numbers(table)
    for name in spec.dense:
        numbers[name]
    assert numbers.read_together(("a", "d")) == {"a"}
    assert not numbers.read_together(("b", "c"))
    first = spec.find_bad(table, numbers)
    assert first == spec.find_bad(table, numbers) == {0: "column 'b' is missing"}
