"""Standardised features and random Fourier features, against scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import StandardScaler

from bigmc.errors import DataError
from bigmc.store.feature_map import FeatureMap, Moments

X = np.random.default_rng(3).normal(size=(40, 5)) * [1, 10, 0.1, 1, 1] + [0, 5, 0, -2, 0]


def test_moments_of_parts_add_up_to_those_of_all_rows():
    total = Moments.of(X[:7]) + Moments.of(X[7:7]) + Moments.of(X[7:31]) + Moments.of(X[31:])
    assert total.count == 40
    np.testing.assert_allclose(total.mean, X.mean(axis=0))
    np.testing.assert_allclose(total.scatter / total.count, X.var(axis=0))


def test_without_fourier_features_are_standardised():
    made = FeatureMap.fit(Moments.of(X), 0, None, 0)
    assert made.n_features == 5
    np.testing.assert_allclose(made.transform(X), StandardScaler().fit_transform(X), atol=1e-6)


@pytest.mark.parametrize(("gamma", "meant"), [(None, 1 / 5), (0.05, 0.05)])
def test_products_of_fourier_features_are_those_of_the_kernel(gamma, meant):
    made = FeatureMap.fit(Moments.of(X), 30_000, gamma, 0)
    waves = made.transform(X)
    assert waves.shape == (40, made.n_features) == (40, 30_000)
    kernel = rbf_kernel(StandardScaler().fit_transform(X), gamma=meant)
    np.testing.assert_allclose(waves @ waves.T, kernel, atol=0.05)
    np.testing.assert_array_equal(FeatureMap.from_dict(made.to_dict()).transform(X), waves)


@pytest.mark.parametrize("value", [np.inf, np.nan, 1e200])
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_standardised_is_refused(value):
    values = X.copy()
    values[3, 1] = value
    with pytest.raises(DataError, match=r"dense feature 1 .* too large to standardise"):
        FeatureMap.fit(Moments.of(values), 0, None, 0)


@pytest.mark.filterwarnings("error")
def test_parts_that_are_too_large_together_are_refused_without_warnings():
    values = X.copy()
    values[20:, 1] = 1e300
    with pytest.raises(DataError, match="dense feature 1 "):
        FeatureMap.fit(Moments.of(values[:20]) + Moments.of(values[20:]), 0, None, 0)
