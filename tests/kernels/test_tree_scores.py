"""Trees evaluated for 64 samples at once, beside one sample and node after the other."""

import numpy as np
import pytest

from bigmc.kernels.boosting.arguments import ScoredTrees
from bigmc.kernels.boosting.scoring import add_learners

N_FEATURES, N_CLASSES, N_TREES = 7, 3, 40


def drawn(depth, rng):
    """Return trees of which some nodes send every sample below, and some classes are not asked for."""
    n_nodes = 2**depth - 1
    low = rng.integers(0, 200, (N_TREES, n_nodes))
    return ScoredTrees(
        feature=rng.integers(0, N_FEATURES, low.shape).astype(np.int32),
        low=low.astype(np.uint8),
        high=(low + rng.integers(-3, 56, low.shape)).clip(0).astype(np.uint8),
        leaf=rng.integers(-1, 2, (N_TREES, n_nodes + 1)).astype(np.int8),
        classes=rng.integers(-1, N_CLASSES + 1, N_TREES),
        weights=rng.random(N_TREES),
    )


def response(tree, t, codes):
    """Return the leaf of one sample with these codes."""
    n_nodes, k = tree.feature.shape[1], 0
    while k < n_nodes:
        k = 2 * k + 1 + int(tree.low[t, k] <= codes[tree.feature[t, k]] <= tree.high[t, k])
    return int(tree.leaf[t, k - n_nodes])


@pytest.mark.parametrize("depth", [1, 2, 3, 6])
@pytest.mark.parametrize("n_rows", [0, 1, 63, 64, 130, 1_100])
def test_they_are_those_of_single_samples(depth, n_rows):
    rng = np.random.default_rng(n_rows + depth)
    trees = drawn(depth, rng)
    codes = rng.integers(0, 256, (N_FEATURES, n_rows)).astype(np.uint8)
    before = rng.normal(size=(N_CLASSES, n_rows))
    expected, found = before.copy(), before.copy()
    for t, c in enumerate(trees.classes.tolist()):
        if 0 <= c < N_CLASSES:
            for i in range(n_rows):
                expected[c, i] += trees.weights[t] * response(trees, t, codes[:, i])
    add_learners(codes, trees, found)
    np.testing.assert_array_equal(found, expected)
    assert n_rows == 0 or not np.array_equal(found, before)
