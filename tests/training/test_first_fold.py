"""Cross-validated linear candidates that promise nothing on the first fold are not tried on the others."""

import numpy as np
import pytest

from bigmc.engine import ThreadEngine
from bigmc.store.dataset import Dataset
from bigmc.training.search.limits import Limits
from bigmc.training.search.search import Search
from bigmc.training.search.trials import Candidate, better
from bigmc.training.search.validation import Validation

START = Candidate("scaled", ridge=1.0)
HOPELESS = Candidate("scaled", ridge=1e4)


@pytest.fixture(scope="module")
def dataset():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 6))
    return Dataset.from_arrays(X, (X[:, 0] + X[:, 1] + rng.normal(size=1200) > 0).astype(int))


@pytest.fixture
def rows(dataset):
    validation = Validation(dataset, ThreadEngine(1), Limits(1 << 30))
    assert validation.cross_validates
    return validation


def test_a_hopeless_candidate_is_judged_as_if_the_other_folds_were_as_good_as_its_rival(rows):
    rival = rows.attempt(START)
    ended = rows.attempt(HOPELESS, rival)
    first = rows._folds[0].places
    right = [np.mean(rows.scores(c)[first].argmax(axis=1) == rows.codes[first]) for c in (HOPELESS, START)]
    share = len(first) / rows.n_rows
    assert ended.quality == pytest.approx(rival.quality + share * (right[0] - right[1]))
    assert ended.log_loss > rival.log_loss
    assert better(rival, ended, rows.n_held_out) is rival
    assert rows.attempt(HOPELESS).log_loss > ended.log_loss  # of all folds


def test_after_a_kill_it_has_the_same_figures(rows, dataset):
    rival = rows.attempt(START)
    again = Validation(dataset, ThreadEngine(1), Limits(1 << 30))  # knows the trial, not the scores
    assert again.attempt(HOPELESS, rival) == rows.attempt(HOPELESS, rival)


def test_a_promising_candidate_is_judged_on_all_folds(rows):
    worse = rows.attempt(HOPELESS)
    assert rows.attempt(START, worse) == rows.attempt(START)


def test_a_search_trains_other_ridges_on_fewer_folds(dataset, monkeypatch):
    search, n_folds = Search(dataset, ThreadEngine(1), Limits(1 << 30)), {}
    scored_folds = search.validation._scored_folds

    def counted(candidate, folds):
        n_folds[candidate] = n_folds.get(candidate, 0) + len(search.validation._folds[folds])
        return scored_folds(candidate, folds)

    monkeypatch.setattr(search.validation, "_scored_folds", counted)
    best = search.run().best.candidate
    assert n_folds[best] == n_folds[search.first] == 5
    assert 1 in n_folds.values()
