"""A category is the same value whatever type its column has in another file."""

import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import bigmc
from bigmc.ingestion.columns.table_columns import Levels, indicators

CODES = np.arange(60) % 4
LABELS = np.where(CODES > 1, "high", "low")


@pytest.mark.parametrize(
    ("value", "level"),
    [
        ("3.0", "3"), ("3", "3"), ("3e0", "3"), ("true", "True"), ("TRUE", "True"), ("1.1", "1.1"),
        ("7", "7.0"), ("2024-01-31 00:00:00", "2024-01-31"), ("1.10", None), ("03", None), ("4", None),
        ("1", None), ("", None), ("9.00", None), ("tree", None),
    ],
)  # fmt: skip
def test_a_text_that_is_no_value_is_the_one_of_its_whole_number_boolean_or_date(value, level):
    levels = Levels("c", ("3", "True", "1.1", "7.0", "2024-01-31", "9", "9.0"))
    column = pa.chunked_array([["3", value], [value, None]])
    expected = [[each == "3", each == level, each == level, False] for each in levels.values]
    np.testing.assert_array_equal(indicators(column, levels), np.array(expected).T.astype(float))


@pytest.mark.slow
@pytest.mark.parametrize("trained", ["int64", "float64"])
def test_one_missing_value_in_a_file_changes_no_other_prediction(tmp_path, trained):
    frame = pd.DataFrame({"code": CODES.astype(trained), "y": LABELS})
    dataset = bigmc.ingest(frame, to=tmp_path / "d", label="y", one_hot="code", split="train=1")
    model = bigmc.SparseClassifier(alpha=1e-3, tol=1e-2).fit(dataset)
    whole, one_missing = pd.DataFrame({"code": CODES}), pd.DataFrame({"code": [np.nan, *CODES[1:]]})
    assert one_missing["code"].dtype == np.float64
    one_missing.to_csv(tmp_path / "new.csv", index=False)
    decimals = pa.table({"code": [decimal.Decimal(f"{code}.00") for code in CODES]})
    np.testing.assert_array_equal(model.predict(whole), LABELS)
    for source in (one_missing, tmp_path / "new.csv", decimals, whole.astype(str)):
        np.testing.assert_array_equal(model.predict(source)[1:], LABELS[1:])
