"""The sum of a linear and a boosted model: its weights, when it is made, and that it errs less."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

import bigmc
from bigmc.engine import ThreadEngine
from bigmc.estimators import classifier_of
from bigmc.store.dataset import Dataset
from bigmc.training.boosting.choose import choose_boosting
from bigmc.training.boosting.sums import add_up, choose_weights
from bigmc.training.search.limits import Limits
from bigmc.training.search.search import Search


def noisy_scores(seed, n=900, n_classes=4):
    """Return scores of two models that both know something of the labels, and of one that knows nothing."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_classes, n)
    truth = np.eye(n_classes)[codes]
    scores = [truth + rng.normal(size=truth.shape), 30 * (truth + 2 * rng.normal(size=truth.shape))]
    return [*scores, rng.normal(size=truth.shape)], codes


@pytest.mark.parametrize("seed", range(3))
def test_weights_have_the_least_log_loss(seed):
    scores, codes = noisy_scores(seed)
    found = np.array(choose_weights(scores, codes))

    def loss(weights):
        total = log_softmax(np.tensordot(np.maximum(weights, 0), np.array(scores), 1), axis=1)
        return -total[np.arange(len(codes)), codes].mean()

    best = minimize(loss, [1.0, 0.03, 0.1], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-10})
    assert (found >= 0).all()
    assert loss(found) <= best.fun + 1e-7


def test_a_model_that_knows_nothing_more_weighs_nothing():
    scores, codes = noisy_scores(5)
    known, *_ = choose_weights([scores[0], -scores[0]], codes)
    assert known > 0
    assert choose_weights([scores[0], -scores[1]], codes)[1] == 0.0


def both_kinds(n, seed=1):
    """Return rows whose labels rare words decide, which trees do not ask, and the product of two numbers."""
    name = np.random.default_rng(0).permutation(400)  # the spelling says nothing
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 400, (n, 5))  # even ones speak for a class, odd ones against it
    x = rng.uniform(-1, 1, (n, 2))
    odds = 1.5 * (1 - 2 * (words % 2)).sum(axis=1) + 3 * np.sign(x[:, 0] * x[:, 1])
    label = rng.random(n) < 1 / (1 + np.exp(-odds))
    text = [" ".join(f"w{name[number]}" for number in row) for row in words]
    return pd.DataFrame({"text": text, "a": x[:, 0], "b": x[:, 1], "label": np.where(label, "up", "down")})


@pytest.mark.slow
def test_fit_adds_up_what_words_and_numbers_say(tmp_path):
    table, new = both_kinds(500), both_kinds(3000, seed=2)
    asked = {"label": "label", "analyzer": "word", "ngrams": (1, 1), "memory_limit": "1GB"}
    result = bigmc.fit(table, tmp_path / "m", **asked)
    assert result["learner"] == "sum"
    assert set(result["rivals"]) == {"sparse", "boost", "sum"}
    model = bigmc.load_model(tmp_path / "m")
    parts = [classifier_of(part).predict(new) for part in model.model_.parts]
    alone = max(np.mean(said == new.label) for said in parts)
    assert np.mean(model.predict(new) == new.label) > alone
    assert result["test"]["log_loss"] < np.log(2)
    kept = (tmp_path / "m").read_bytes()
    for name in ("m", "m.fit/result.json"):
        (tmp_path / name).unlink()
    assert bigmc.fit(table, tmp_path / "m", **asked)["learner"] == "sum"
    assert (tmp_path / "m").read_bytes() == kept


def searched(X, y, folder):
    """Return a search, how it ended and the best boosting."""
    data = Dataset.from_arrays(X, y)
    search = Search(data, ThreadEngine(1), Limits(1 << 30), folder)
    rival = choose_boosting(search, data, folder)
    return search, search.run(rival.trial.quality).best, rival


def test_a_killed_run_has_the_same_sum(tmp_path):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 3))
    y = (X[:, 0] + np.sign(X[:, 1] * X[:, 2]) + rng.normal(size=300) > 0).astype(int)
    whole = add_up(*searched(X, y, tmp_path), tmp_path / "sum.json")
    (tmp_path / "sum.json").unlink()
    again = add_up(*searched(X, y, tmp_path), tmp_path / "sum.json")  # nothing is trained but for the sum
    assert again == whole
    assert add_up(*searched(X, y, tmp_path), tmp_path / "sum.json") == whole


@pytest.mark.exhaustive
def test_labels_that_are_a_sum_alone_need_no_trees(tmp_path):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(400, 5))
    y = (X @ np.arange(1, 6) + 2 * rng.normal(size=400) > 0).astype(int)
    assert not add_up(*searched(X, y, tmp_path), tmp_path / "sum.json").is_worth_it
