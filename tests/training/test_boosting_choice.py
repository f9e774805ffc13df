"""Depth and rounds of boosting are those that held-out rows ask for."""

from dataclasses import replace

import numpy as np
import pytest

import bigmc
from bigmc.engine import ThreadEngine
from bigmc.options.learners import BoostOptions
from bigmc.store.dataset import Dataset
from bigmc.training.boosting import MORE_ROUNDS, ROUNDS, choose_boosting
from bigmc.training.search import Limits, Search
from bigmc.training.trials import Candidate, Trial, better

RNG = np.random.default_rng(3)


def searched(X, y):
    """Return a search on rows in memory, and the rows."""
    data = Dataset.from_arrays(X, y)
    return Search(data, ThreadEngine(1), Limits(1 << 30)), data


def test_labels_that_are_mostly_chance_ask_for_few_rounds(tmp_path):
    X = RNG.normal(size=(900, 8))
    y = (X[:, 0] + 3 * RNG.normal(size=900) > 0).astype(int)
    found = choose_boosting(*searched(X, y), tmp_path)
    assert found.n_rounds < ROUNDS[-1]
    model = bigmc.MultiBoostClassifier(max_depth=4).fit(X, y)
    Z = RNG.normal(size=(4000, 8))
    truth = (Z[:, 0] + 3 * RNG.normal(size=4000) > 0).astype(int)
    options = {"max_depth": found.max_depth, "n_rounds": found.n_rounds, "C": found.C}
    chosen = bigmc.MultiBoostClassifier(**options).fit(X, y)
    assert chosen.score(Z, truth) > model.score(Z, truth)


def test_sums_of_steps_without_noise_ask_for_many_rounds(tmp_path):
    X = RNG.normal(size=(1500, 6))
    y = np.sin(3 * X[:, :3]).sum(axis=1) + X[:, 3] * X[:, 4] > 0
    found = choose_boosting(*searched(X, y.astype(int)), tmp_path)
    assert found.n_rounds in MORE_ROUNDS


def test_the_trial_is_that_of_a_model_of_so_many_rounds(tmp_path):
    X = RNG.normal(size=(400, 5))
    y = (X[:, 0] * X[:, 1] + RNG.normal(size=400) > 0).astype(int)
    search, data = searched(X, y)
    found = choose_boosting(search, data, tmp_path)
    assert isinstance(found.options, BoostOptions)
    [alone] = search.judge(found.options, found.trial.candidate, lambda model: [model])
    assert replace(alone, seconds=0.0) == replace(found.trial, seconds=0.0)


def test_trials_of_a_killed_run_are_not_made_again(tmp_path, monkeypatch):
    X = RNG.normal(size=(300, 4))
    search, data = searched(X, RNG.integers(0, 2, 300))
    found = choose_boosting(search, data, tmp_path)
    monkeypatch.setattr(search, "judge", lambda *_: pytest.fail("judged again"))
    again = choose_boosting(search, data, tmp_path)
    assert again == found
    assert again.trial.seconds == found.trial.seconds


@pytest.mark.parametrize(("quality", "log_loss", "wins"), [(0.80, 0.4, 0), (0.81, 0.4, 1), (0.80, 0.35, 1)])
def test_a_later_trial_must_be_worth_it(quality, log_loss, wins):
    candidate = Candidate(None)
    trials = [Trial(candidate, 0.80, 0.4, None, 1), Trial(candidate, quality, log_loss, None, 1)]
    assert better(*trials, n_held_out=1000) is trials[wins]
