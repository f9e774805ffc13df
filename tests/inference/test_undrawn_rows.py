"""An evaluation without the rows that a sample draws, against scikit-learn on the others."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.metrics import accuracy_score, f1_score, log_loss

from bigmc.engine import Resources, ThreadEngine
from bigmc.inference.evaluation.evaluate import evaluate
from bigmc.inference.evaluation.labelled import UndrawnRows
from bigmc.model import LinearModel
from bigmc.options.inference import EvaluateOptions
from bigmc.store.dataset import Dataset
from bigmc.store.sample import draw_rows

RNG = np.random.default_rng(3)
X = scipy.sparse.random_array((3000, 12), density=0.4, rng=RNG).tocsr()
CLASSES = np.array(["a", "b", "c"])
RESOURCES = Resources(ThreadEngine(2), 1 << 28)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.97])
def test_figures_are_those_of_the_other_rows(share):
    coef = RNG.standard_normal((12, 3))
    model = LinearModel("sparse", CLASSES, 12, np.arange(12), coef, np.zeros(3), params={"loss": "log_loss"})
    labels = RNG.choice(CLASSES, 3000)
    data = Dataset.from_arrays(X, labels, shard_rows=1300)
    _, drawn = draw_rows(data, share, 7, ThreadEngine())
    others = np.setdiff1d(np.arange(3000), drawn)
    figures = evaluate(model, UndrawnRows(data, share, 7), EvaluateOptions(), RESOURCES)
    scores = X[others] @ coef
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    assert figures["n_samples"] == len(others)
    assert figures["accuracy"] == pytest.approx(
        accuracy_score(labels[others], CLASSES[scores.argmax(axis=1)])
    )
    assert figures["log_loss"] == pytest.approx(log_loss(labels[others], chances), rel=1e-5)


def test_label_sets():
    coef = RNG.standard_normal((12, 5))
    model = LinearModel("sparse", np.arange(5), 12, np.arange(12), coef, np.zeros(5), label_threshold=0.3)
    truth = RNG.random((3000, 5)) < 0.4
    data = Dataset.from_arrays(X, scipy.sparse.csr_array(truth), shard_rows=1300)
    _, drawn = draw_rows(data, 0.3, 7, ThreadEngine())
    others = np.setdiff1d(np.arange(3000), drawn)
    figures = evaluate(model, UndrawnRows(data, 0.3, 7), EvaluateOptions(), RESOURCES)
    said = (X[others] @ coef) >= 0.3
    assert figures["n_samples"] == len(others)
    assert figures["micro_f1"] == pytest.approx(f1_score(truth[others], said, average="micro"))
