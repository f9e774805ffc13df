"""Samples in row order, against SciPy."""

import numpy as np
import pytest
import scipy.sparse

from .conftest import rows_of


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_marked_rows_are_those_of_scipy(share):
    generator = np.random.default_rng(1)
    X = scipy.sparse.random_array((40, 7), density=0.3, rng=generator, format="csr")
    marked = generator.random(30) < share
    chosen = rows_of(X).between(5, 35).where(marked)
    found = scipy.sparse.csr_array((chosen.data, chosen.indices, chosen.indptr), shape=(chosen.n_rows, 7))
    np.testing.assert_array_equal(found.toarray(), X.toarray()[5:35][marked])
