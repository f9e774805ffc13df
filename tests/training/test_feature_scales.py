"""Columns in different units are named where they make a linear model slow or worse, and only there."""

import re
import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning

from bigmc import MinimaxRiskClassifier, SparseClassifier, api

N = 3000


@pytest.fixture(scope="module")
def columns():
    """Return values of four columns of size 1, and three classes that depend on all of them."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(N, 4))
    weights = rng.normal(size=(4, 3)) * [[1], [3], [1], [1]]
    classes = (values @ weights + rng.gumbel(size=(N, 3))).argmax(axis=1)
    return values, classes


def trained(folder, columns, factors, **options):
    """Return the result of a training on columns that were multiplied, and the share of right rows."""
    values, classes = columns
    api.ingest(values * factors, folder / "d", label=classes, split={"train": 1.0}, **options)
    result = api.train("sparse", folder / "d", folder / "m")
    return result["notes"], api.evaluate(folder / "m", folder / "d", split="train")["accuracy"]


@pytest.mark.parametrize("factors", [(1, 1, 1, 1), (1e3, 1, 1, 1), (1, 0.1, 1, 100)])
def test_columns_that_do_no_harm_are_not_named(tmp_path, columns, factors):
    notes, accuracy = trained(tmp_path, columns, factors)
    assert notes == []
    assert accuracy == pytest.approx(trained_on_one_scale(tmp_path, columns), abs=0.005)


def trained_on_one_scale(folder, columns):
    """Return the share of right rows where every column has a deviation of 1."""
    (folder / "one").mkdir()
    return trained(folder / "one", columns, (1, 1, 1, 1))[1]


@pytest.mark.parametrize("small", [1e-3, 1e-30])
def test_small_values_are_named_and_the_named_cure_helps(tmp_path, columns, small):
    notes, accuracy = trained(tmp_path, columns, (1, small, 1, 1))
    (note,) = notes
    assert f"about {small:.0e}" in note
    assert "feature 1" in note
    best = trained_on_one_scale(tmp_path, columns)
    assert accuracy < best - 0.02  # the warning is no false alarm
    (tmp_path / "cured").mkdir()
    assert "--weighting scaled" in note
    cured, accuracy = trained(tmp_path / "cured", columns, (1, small, 1, 1), weighting="scaled")
    assert cured == []
    assert accuracy == pytest.approx(best, abs=0.005)


def test_all_values_small(tmp_path, columns):
    (note,) = trained(tmp_path, columns, (1e-5,) * 4)[0]
    assert note.startswith("the values of feature ")
    assert "e-05" in note


def test_a_descent_that_stops_early_says_which_columns_are_far_apart(tmp_path, columns):
    values, classes = columns
    with_id = np.column_stack([values, 1e9 + np.arange(N)])
    with pytest.warns(ConvergenceWarning) as told:
        SparseClassifier(alpha=1e-3, max_passes=2).fit(with_id, classes)
    said = [str(one.message) for one in told]
    assert any("feature 4 are about 1e+09" in text and "training is slow" in text for text in said), said
    with pytest.warns(ConvergenceWarning) as told:
        SparseClassifier(alpha=1e-6, tol=1e-12, max_passes=2).fit(values, classes)
    assert [one for one in told if "feature" in str(one.message)] == []


def test_a_column_of_a_table_has_its_name(tmp_path, columns):
    values, classes = columns
    lines = [f"{a},{b * 1e-4},{y}" for (a, b, _, _), y in zip(values, classes, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["wide,narrow,y", *lines]))
    api.ingest(tmp_path / "t.csv", tmp_path / "d", label="y", dense=["wide", "narrow"])
    (note,) = api.train("sparse", tmp_path / "d", tmp_path / "m")["notes"]
    assert "column 'wide'" in note
    assert "column 'narrow'" in note


@pytest.mark.parametrize("intercept", [False, True])
def test_without_weights_the_largest_useful_alpha_is_named(columns, intercept):
    values, classes = columns
    with pytest.warns(ConvergenceWarning, match="no feature has a weight: alpha is 30") as told:
        SparseClassifier(alpha=30, fit_intercept=intercept).fit(values, classes)
    largest = float(re.search("less than (.*), or", str(told[0].message))[1])
    for alpha, n_used in ((largest * 1.01, 0), (largest * 0.98, 1)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = SparseClassifier(alpha=alpha, fit_intercept=intercept, tol=1e-6).fit(values, classes)
        assert len(np.unique(model.coef_.nonzero()[1])) == n_used


def test_rare_words_are_not_small_values():
    rng = np.random.default_rng(1)
    counts = scipy.sparse.random(400, 300, 0.02, "csr", random_state=rng)
    counts.data[:] = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SparseClassifier(alpha="auto").fit(counts, rng.integers(0, 2, 400))


def test_a_column_far_from_0_is_named_where_no_intercept_can_make_up_for_it(tmp_path, columns):
    values, classes = columns
    api.ingest(values + np.array([1e3, 1e4, 1e3, 1e3]), tmp_path / "d", label=classes, split={"train": 1.0})
    options = {"alpha": 1e-3, "max_passes": 5}
    notes = api.train("sparse", tmp_path / "d", tmp_path / "m", **options)["notes"]
    assert "values of feature 1 are about 1e+04 and vary by 1e+00" in notes[-1]
    assert "--fit-intercept" in notes[-1]
    with_intercept = api.train("sparse", tmp_path / "d", tmp_path / "i", **options, fit_intercept=True)
    assert with_intercept["notes"] == []


def test_columns_so_far_from_0_that_minimax_learning_makes_nothing_of_them_are_named(tmp_path, columns):
    values, classes = columns
    years = values + 2000
    with pytest.warns(ConvergenceWarning, match="values of feature . are about 2e.03.*standardize=True"):
        far = MinimaxRiskClassifier().fit(years, classes).score(years, classes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        near = MinimaxRiskClassifier().fit(values, classes).score(values, classes)
        again = MinimaxRiskClassifier(standardize=True).fit(years, classes).score(years, classes)
    assert far < near - 0.2
    assert again > near - 0.02

    api.ingest(years, tmp_path / "d", label=classes, split={"train": 1.0})
    (note,) = api.train("mrc", tmp_path / "d", tmp_path / "m")["notes"]
    assert "values of feature" in note
    assert "--standardize" in note
