"""Boosting gets more rounds where these gain on unseen rows, once it is trained on all rows."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import bigmc
from bigmc.engine import Resources, ThreadEngine
from bigmc.model import SumModel
from bigmc.model.calibration import Calibration
from bigmc.options.learners import BoostOptions
from bigmc.store.dataset import Dataset
from bigmc.training.boosting import rounds as boosting_rounds
from bigmc.training.fit import find_winner, more_rounds, unseen_rows
from bigmc.training.fit.models import FitModels
from bigmc.training.fit.more_rounds import with_more_rounds
from bigmc.training.fit.unseen_rows import JudgedWinner, UnseenRows
from bigmc.training.search import limits, search_rows
from bigmc.training.search.label_thresholds import Thresholds
from bigmc.training.search.limits import Limits
from bigmc.training.search.trials import Candidate, Verdict
from bigmc.training.search.winner import Winner

LOSSES = {6: 0.9, 12: 0.6, 25: 0.5, 50: 0.49, 100: 0.4895, 200: 0.3}
"""Log loss by rounds; the step to 100 is too small."""


class Models:
    """Models that are their numbers of rounds; after so many of them, there is time for few rows only."""

    def __init__(self, n_trained_in_time=99, has_time=True):
        self.rounds, self.n_rows, self.left, self.has_time = [], None, n_trained_in_time, has_time

    def has_time_for(self, seconds):
        return self.has_time

    def tested(self, winner):
        self.rounds.append(winner.boosting_options.n_rounds)
        self.left -= 1
        self.n_rows = None if self.left >= 0 else 20_000
        return self.rounds[-1]

    tested_on_all = FitModels.tested_on_all


def judged(winner, n_rounds):
    return JudgedWinner(winner, Verdict(0.8, LOSSES[n_rounds], Calibration()))


UNSEEN = SimpleNamespace(weighed=judged)
BOOSTED = Winner("boost", None, Calibration(), boosting=BoostOptions(n_rounds=12, max_depth=2))


def test_rounds_are_added_while_they_gain():
    models = Models()
    found = with_more_rounds(BOOSTED, UNSEEN, models)
    assert models.rounds == [12, 25, 50, 100]
    assert found.winner == BOOSTED.with_rounds(50)
    assert found.notes == [
        "trained on all rows, boosting has 50 rounds instead of 12, which the search chose: a log loss of "
        "0.490 instead of 0.600, on rows that are not among those of the test"
    ]


def test_a_sum_gets_them_for_its_boosted_part():
    linear = Winner("sparse", Candidate(None), Calibration())
    both = Winner("sum", None, Calibration(), parts=(linear, BOOSTED), part_weights=(1.0, 2.0))
    found = with_more_rounds(both, UNSEEN, Models())
    assert found.winner.parts == (linear, BOOSTED.with_rounds(50))
    assert with_more_rounds(linear, UNSEEN, Models()).winner is linear


@pytest.mark.parametrize(
    ("models", "trained"),
    [
        (Models(has_time=False), [12]),
        (Models(n_trained_in_time=0), [12]),
        (Models(n_trained_in_time=2), [12, 25, 50]),
    ],
)
def test_without_time_for_all_rows_the_rounds_stay(models, trained):
    found = with_more_rounds(BOOSTED, UNSEEN, models)
    assert models.rounds == trained
    assert found.winner.boosting.n_rounds == (25 if len(trained) > 1 else 12)
    if len(trained) > 1:
        assert models.n_rows is None  # the model that is taken has learned from all


def test_averages_keep_their_rounds():
    several = replace(BOOSTED, boosting=replace(BOOSTED.boosting, n_models=4, column_share=0.5))
    models = Models()
    assert with_more_rounds(several, UNSEEN, models).winner is several
    assert models.rounds == []


@pytest.mark.parametrize("is_misled", [False, True])
def test_a_sum_gets_new_weights_or_loses_a_linear_part_without_any(is_misled):
    rng = np.random.default_rng(6)
    x = rng.normal(size=(1500, 4))
    codes = (x @ [1, 1, 1, 0] + x[:, 0] * x[:, 1] + rng.normal(size=1500) > 0).astype(int)
    train, test = Dataset.from_arrays(x[:500], codes[:500]), Dataset.from_arrays(x[500:], codes[500:])
    linear = bigmc.SparseClassifier().fit(x[:500], 1 - codes[:500] if is_misled else codes[:500]).model_
    boosted = bigmc.MultiBoostClassifier(n_rounds=6, max_depth=2).fit(train).model_
    one = Winner("sparse", Candidate(None), Calibration())
    both = Winner("sum", None, Calibration(), parts=(one, BOOSTED), part_weights=(9.0, 0.1))
    rows = UnseenRows(test, Thresholds.SHARED, Limits(10**9), Resources(ThreadEngine(1), 10**9), 100)
    model = SumModel.of([linear, boosted], np.array(both.part_weights))
    found = rows.weighed(both, model)
    if is_misled:
        assert found.winner is BOOSTED
        assert found.verdict.log_loss == rows.judge(BOOSTED, boosted).log_loss
    else:
        assert found.winner.parts == both.parts
        assert found.verdict.log_loss < rows.judge(both, model).log_loss


@pytest.fixture
def few_searched(tmp_path, monkeypatch):
    """A dataset whose search sees some of the rows, and chooses six rounds."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(3000, 4))
    noisy = x[:, 0] * x[:, 1] + x[:, 2] + 0.3 * rng.normal(size=3000) > 0
    frame = pd.DataFrame(x, columns=list("abcd")).assign(label=np.where(noisy, "yes", "no"))
    monkeypatch.setattr(unseen_rows, "FEWEST_JUDGES", 50)
    monkeypatch.setattr(limits, "FEW_ROWS_OF_TABLES", 100)
    monkeypatch.setattr(search_rows, "SAMPLE_ROWS", 600)
    monkeypatch.setattr(search_rows, "FEWEST_ROWS", 600)
    monkeypatch.setattr(boosting_rounds, "MORE_ROUNDS", ())  # the search's choice is replaced
    choose = find_winner.choose_boosting

    def six_rounds(*arguments):
        found = choose(*arguments)
        return replace(found, options=replace(found.options, n_rounds=6))

    monkeypatch.setattr(find_winner, "choose_boosting", six_rounds)
    monkeypatch.setattr(find_winner, "add_up", lambda *_: None)
    return bigmc.ingest(frame, tmp_path / "d", label="label", dense=list("abcd"))


def rounds_of(result):
    return int(result["settings"].split(" rounds")[0].split()[-1])


def test_a_fit_has_the_rounds_that_suit_all_rows_and_its_model_that_many(few_searched, tmp_path, monkeypatch):
    result = bigmc.fit(few_searched, tmp_path / "m", memory_limit="1GB")
    assert rounds_of(result) > 6
    assert any("instead of 6, which the search chose" in note for note in result["notes"])
    assert bigmc.load_model(tmp_path / "m").model_.n_stages - 1 == rounds_of(result)
    monkeypatch.setattr(more_rounds, "GAIN", 1.0)
    before = bigmc.fit(few_searched, tmp_path / "few", memory_limit="1GB")
    assert rounds_of(before) == 6
    assert result["test"]["log_loss"] < before["test"]["log_loss"]


@pytest.mark.exhaustive
def test_killed_after_trainings_it_makes_the_same_model(few_searched, tmp_path, monkeypatch):
    whole = bigmc.fit(few_searched, tmp_path / "whole", memory_limit="1GB")
    left, tested = [0], FitModels.tested

    def stopped(models, winner):
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        return tested(models, winner)

    for n_trained in (1, 2, 3):  # of one fit, which goes on with the trainings that are done
        left[0] = n_trained
        with monkeypatch.context() as context:
            context.setattr(FitModels, "tested", stopped)
            with pytest.raises(KeyboardInterrupt):
                bigmc.fit(few_searched, tmp_path / "m", memory_limit="1GB")
    again = bigmc.fit(few_searched, tmp_path / "m", memory_limit="1GB")
    assert again["test"] == whole["test"]
    assert (tmp_path / "m").read_bytes() == (tmp_path / "whole").read_bytes()
