"""Precision and nDCG of the best classes, against scikit-learn and a plain loop."""

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from bigmc.inference.evaluation.top_labels import RANKS, top_classes, top_sums

RNG = np.random.default_rng(4)


def tiles_of(scores, width):
    for lo in range(0, scores.shape[1], width):
        yield lo, scores[:, lo : lo + width]


@pytest.mark.parametrize("width", [1, 3, 20])
def test_figures_are_scikit_learns(width):
    scores = RNG.normal(size=(60, 20))
    truth = RNG.random(scores.shape) < 0.2
    rows, codes = np.nonzero(truth)
    sums = top_sums(top_classes(tiles_of(scores, width), 60, max(RANKS)), rows, codes, 20)
    order = np.argsort(-scores, axis=1)
    for i, k in enumerate(RANKS):
        precision = np.take_along_axis(truth, order[:, :k], axis=1).mean(axis=1).sum()
        assert sums[0, i] == pytest.approx(precision)
        assert sums[1, i] / 60 == pytest.approx(ndcg_score(truth, scores, k=k, ignore_ties=True))


def test_ties_go_to_the_lower_class_and_missing_ranks_are_no_labels():
    top = top_classes(tiles_of(np.array([[1.0, 2.0, 2.0]]), 2), 1, 5)
    assert top.tolist() == [[1, 2, 0, -1, -1]]
    sums = top_sums(top, np.array([0]), np.array([2]), 3)
    np.testing.assert_allclose(sums[0], [0, 1 / 3, 1 / 5])
