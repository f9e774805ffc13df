"""Unions of features against Python's sets."""

import numpy as np
import pytest

from bigmc.solvers.sparse.feature_sets import union


@pytest.mark.parametrize(("n_first", "n_second"), [(0, 0), (0, 5), (7, 0), (200, 300), (1000, 3)])
def test_unions_have_every_feature_once_in_increasing_order(n_first, n_second):
    generator = np.random.default_rng(0)
    first = np.sort(generator.choice(1000, n_first, replace=False))
    second = generator.choice(1000, n_second, replace=False)  # layers one after another are not sorted
    found = union(first, second)
    assert found.tolist() == sorted({*first.tolist(), *second.tolist()})
    assert found.dtype == np.int64
