"""Figures of probabilities are scikit-learn's, whatever the shards."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.calibration import calibration_curve
from sklearn.metrics import log_loss, roc_auc_score, top_k_accuracy_score

import bigmc
from bigmc.inference.evaluation.probabilities import ProbabilitySums
from bigmc.store.dataset import Dataset

RNG = np.random.default_rng(8)


def chances_of(n_classes, n=500):
    chances = softmax(RNG.normal(size=(n, n_classes)) * 2, axis=1)
    return chances, np.array([RNG.choice(n_classes, p=p) for p in chances])


def summed(chances, codes):
    total = ProbabilitySums()
    for rows in np.array_split(np.arange(len(codes)), 3):
        total.add(ProbabilitySums.of(chances[rows], codes[rows]))
    return total.figures(chances.shape[1])


@pytest.mark.parametrize("n_classes", [2, 4, 8])
def test_figures_are_scikit_learns(n_classes):
    chances, codes = chances_of(n_classes)
    found = summed(chances, codes)
    assert found["log_loss"] == pytest.approx(log_loss(codes, chances))
    marks = np.eye(n_classes)[codes]
    assert found["brier"] == pytest.approx(((chances - marks) ** 2).sum(axis=1).mean())
    if n_classes == 2:
        assert found["roc_auc"] == pytest.approx(roc_auc_score(codes, chances[:, 1]))
    if n_classes == 8:
        assert found["top_5_accuracy"] == pytest.approx(top_k_accuracy_score(codes, chances, k=5))


def test_reliability_is_scikit_learns():
    chances, codes = chances_of(4, 2000)
    found = summed(chances, codes)
    right = chances.argmax(axis=1) == codes
    accuracy, confidence = calibration_curve(right, chances.max(axis=1), n_bins=15)
    bins = found["reliability"]
    np.testing.assert_allclose([b["accuracy"] for b in bins], accuracy)
    np.testing.assert_allclose([b["confidence"] for b in bins], confidence)
    weights = np.array([b["n_samples"] for b in bins]) / len(codes)
    assert found["calibration_error"] == pytest.approx((weights * abs(accuracy - confidence)).sum())


def test_labels_that_the_model_does_not_know_do_not_count():
    chances, codes = chances_of(4)
    some = codes.copy()
    some[:100] = -1
    found, wanted = summed(chances, some), summed(chances[100:], codes[100:])
    assert found["log_loss"] == pytest.approx(wanted["log_loss"])
    assert found["reliability"] == wanted["reliability"] or found["brier"] == pytest.approx(wanted["brier"])


def test_a_model_with_probabilities_is_evaluated_with_them(tmp_path):
    X, y = RNG.integers(-9, 10, (300, 4)), RNG.integers(0, 3, 300)
    model = bigmc.SparseClassifier(alpha=1e-4, loss="log_loss").fit(X, y)
    found = bigmc.evaluate(model, Dataset.from_arrays(X, y), split="all")
    assert found["log_loss"] == pytest.approx(log_loss(y, model.predict_proba(X)))
    plain = bigmc.SparseClassifier(alpha=1e-4).fit(X, y)
    assert "log_loss" not in bigmc.evaluate(plain, Dataset.from_arrays(X, y), split="all")
