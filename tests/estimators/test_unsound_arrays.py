"""Arrays that are not what their type says are refused before a kernel reads beside them."""

import numpy as np
import pytest
import scipy.sparse

import bigmc
from bigmc import api
from bigmc.errors import DataError

X = np.random.default_rng(0).poisson(1.0, (60, 5)).astype(np.int8)
Y = X.sum(axis=1) > 5
ESTIMATORS = [
    bigmc.SparseClassifier(alpha=1e-3, tol=0.1),
    bigmc.MultiBoostClassifier(n_rounds=1),
    bigmc.MinimaxRiskClassifier(k_max=1),
]


def unsound(form, change):
    """Return a sparse matrix with an index outside of its shape, or with rows that end before they begin."""
    matrix = getattr(scipy.sparse, form)(X)
    array, value = {"beyond": ("indices", 1 << 30), "negative": ("indices", -7), "rows": ("indptr", 1 << 30)}[
        change
    ]
    getattr(matrix, array)[5] = value
    return matrix


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_estimators_refuse_sparse_matrices_with_wrong_indices(estimator):
    estimator.fit(scipy.sparse.csr_array(X), Y)
    for form in ("csr_array", "csc_matrix"):
        for change in ("beyond", "negative", "rows"):
            for call in (lambda bad: estimator.fit(bad, Y), estimator.predict):
                with pytest.raises(DataError, match=r"X: not a valid sparse matrix .*; check its shape"):
                    call(unsound(form, change))


@pytest.mark.parametrize("change", ["beyond", "negative", "rows"])
def test_ingest_refuses_them(tmp_path, change):
    with pytest.raises(DataError, match="csr_array: not a valid sparse matrix"):
        api.ingest(unsound("csr_array", change), tmp_path / "d.bigmc", label=Y)


@pytest.mark.parametrize("estimator", [*ESTIMATORS, bigmc.MinimaxRiskClassifier(standardize=True)])
def test_a_mask_is_not_dropped(estimator):
    masked = np.ma.masked_array(X, X > 2)
    with pytest.raises(DataError, match="X: masked arrays are not supported; fill or drop"):
        estimator.fit(masked, Y)
