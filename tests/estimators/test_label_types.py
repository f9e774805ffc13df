"""Labels of types that mark missing values: of pandas, Arrow and polars."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bigmc
from bigmc.errors import DataError
from bigmc.store.dataset import Dataset

X = (np.arange(60)[:, np.newaxis] % 2).astype(np.int8)
IDS = 2**53 + np.arange(60) % 2
"""Neighbours that are one number as floats."""

ESTIMATORS = [
    bigmc.SparseClassifier(alpha=1e-3, fit_intercept=True),
    bigmc.MultiBoostClassifier(n_rounds=2),
    bigmc.MinimaxRiskClassifier(k_max=2),
    bigmc.MinimaxRiskClassifier(k_max=2, standardize=True),
]

NULLABLE = {
    "Int64": lambda values: pd.Series(values, dtype="Int64"),
    "array": lambda values: pd.array(values, dtype="Int64"),
    "arrow type": lambda values: pd.Series(values, dtype="int64[pyarrow]"),
    "frame": lambda values: pd.DataFrame({"y": pd.Series(values, dtype="Int64")}),
    "arrow": pa.array,
    "polars": pl.Series,
    "list": list,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
@pytest.mark.parametrize("form", NULLABLE)
def test_integers_stay_integers(estimator, form):
    y = NULLABLE[form](IDS.tolist())
    model = estimator.fit(X, y)
    assert model.classes_.dtype.kind == "i"
    assert model.classes_.tolist() == [2**53, 2**53 + 1]
    assert model.predict(X).tolist() == IDS.tolist()
    assert model.score(X, y) == 1.0
    assert model.score(X, NULLABLE[form](IDS[::-1].tolist())) == 0.0


@pytest.mark.parametrize("dtype", ["boolean", "bool[pyarrow]"])
def test_booleans_stay_booleans(dtype):
    y = pd.Series(IDS % 2 == 1).astype(dtype)
    model = ESTIMATORS[0].fit(X, y)
    assert model.classes_.dtype == bool
    np.testing.assert_array_equal(model.predict(X), y)


@pytest.mark.parametrize("form", [name for name in NULLABLE if name != "frame"])
def test_a_missing_label_is_refused_with_its_row(form):
    y = NULLABLE[form]([*IDS[:7].tolist(), None, *IDS[8:].tolist()])
    with pytest.raises(DataError, match="row 7: the label is missing"):
        ESTIMATORS[0].fit(X, y)
    with pytest.raises(DataError, match="row 7: the label is missing"):
        Dataset.from_arrays(X, y)


@pytest.mark.parametrize("missing", [np.nan, None, pd.NA])
@pytest.mark.parametrize("dtype", ["string", "category", "boolean"])
def test_a_missing_value_of_other_types_is_refused_with_its_row(dtype, missing):
    values = [True, False] * 30 if dtype == "boolean" else ["a", "b"] * 30
    y = pd.Series([*values[:9], missing, *values[10:]], dtype=dtype)
    with pytest.raises(DataError, match="row 9: the label is missing"):
        ESTIMATORS[0].fit(X, y)


def test_a_dataset_has_the_integers():
    assert Dataset.from_arrays(X, pd.Series(IDS, dtype="Int64")).classes.tolist() == [2**53, 2**53 + 1]
    assert Dataset.from_arrays(X, pd.Series(IDS, dtype="Int64")).classes.dtype == np.int64


def test_texts_of_numpys_variable_length_type_are_texts():
    y = np.array(["no", "yes, twice"], dtype=np.dtypes.StringDType())[IDS % 2]
    model = ESTIMATORS[0].fit(X, y)
    assert model.classes_.tolist() == ["no", "yes, twice"]
    assert model.predict(X).tolist() == y.tolist()
    assert model.score(X, y) == 1.0
