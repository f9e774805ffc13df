"""Boosting that has no time for all rows: which rows it learns from, by a clock that runs when it trains."""

import math
import time
from types import SimpleNamespace

import numpy as np
import pytest

import bigmc
from bigmc.engine import Resources, ThreadEngine
from bigmc.model import load_model
from bigmc.model.calibration import Calibration
from bigmc.options.learners import BoostOptions
from bigmc.store.dataset import Dataset
from bigmc.training.fit import in_time
from bigmc.training.search.trials import Candidate
from bigmc.training.search.winner import Winner

N, FEW = 3000, 200
SECONDS_A_ROW = 0.001


@pytest.fixture
def clock(monkeypatch):
    """Trainings take a millisecond for each row; their numbers of rows are recorded."""
    now, rows = [100.0], []
    learn = in_time._trained

    def trained(winner, samples, resources, work, start):
        rows.append(samples.n_samples)
        now[0] += SECONDS_A_ROW * samples.n_samples
        endless = Resources(resources.engine, resources.memory_limit)
        return learn(winner, samples, endless, work, start)

    monkeypatch.setattr(in_time, "FEW_ROWS", FEW)
    monkeypatch.setattr(in_time, "_trained", trained)
    monkeypatch.setattr(in_time, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return rows


def trained_in(seconds, tmp_path, rare=False, **options):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4))
    y = X[:, 0] > X[:, 0].min() if rare else X[:, 0] * X[:, 1] > 0
    dataset = Dataset.from_arrays(X, y.astype(int), shard_rows=700)
    winner = Winner("boost", None, Calibration(), boosting=BoostOptions(n_rounds=6, max_depth=2, **options))
    resources = Resources(ThreadEngine(1), 10**9, ends=100.0 + seconds)
    return in_time.train_in_time(winner, dataset, resources, tmp_path / "work")


def test_without_an_end_or_with_averaged_models_all_rows_are_taken_at_once(clock, tmp_path):
    assert "n_rows" not in trained_in(math.inf, tmp_path / "a").params
    trained_in(1.0, tmp_path / "b", n_models=2, column_share=0.5)
    assert clock == [N, N]


@pytest.mark.parametrize("options", [{"n_models": 2, "column_share": 0.5}, {}])
def test_few_rows_get_all_their_rounds_though_the_time_is_over(options, tmp_path):
    """One of six rounds would be far from the model that was judged, and from its calibration."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    dataset = Dataset.from_arrays(X, (X[:, 0] * X[:, 1] > 0).astype(int))
    winner = Winner("boost", None, Calibration(), boosting=BoostOptions(n_rounds=6, max_depth=2, **options))
    models = []
    for name, ends in (("late", time.monotonic() - 1.0), ("endless", math.inf)):
        resources = Resources(ThreadEngine(1), 10**9, ends=ends)
        models.append(in_time.train_in_time(winner, dataset, resources, tmp_path / name))
    late, endless = models
    assert late.n_iter == 6
    np.testing.assert_array_equal(late.shard_scores(dataset, 0), endless.shard_scores(dataset, 0))


def test_a_linear_model_of_few_rows_is_trained_though_the_time_is_over(tmp_path):
    """After one pass it would be far from the model that was judged."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)) * [1, 10, 100, 1000]
    dataset = Dataset.from_arrays(X, (X @ [1, 0.1, 0.01, 0.001] > 0).astype(int))
    winner = Winner("sparse", Candidate(None), Calibration())
    models = []
    for name, ends in (("late", time.monotonic() - 1.0), ("endless", math.inf)):
        resources = Resources(ThreadEngine(1), 10**9, ends=ends)
        models.append(in_time.train_in_time(winner, dataset, resources, tmp_path / name))
    late, endless = models
    assert late.certificate["gap"] < 0.1
    np.testing.assert_array_equal(late.shard_scores(dataset, 0), endless.shard_scores(dataset, 0))


def test_all_rows_are_taken_where_there_is_time(clock, tmp_path):
    model = trained_in(10.0, tmp_path)
    assert len(clock) == 2
    assert abs(clock[0] - FEW) < 4 * math.sqrt(FEW)
    assert clock[1] == N
    assert "n_rows" not in model.params


@pytest.mark.parametrize(("seconds", "rows"), [(1.2, 800), (2.2, 1600)])
def test_as_many_rows_are_taken_as_there_is_time_for(seconds, rows, clock, tmp_path):
    """In all, the few rows and the others; a fifth of the time that is left is kept in reserve."""
    model = trained_in(seconds, tmp_path)
    assert abs(clock[1] - rows) < 0.15 * rows
    assert SECONDS_A_ROW * sum(clock) < seconds
    assert model.params["n_rows"] == clock[1]
    assert model.n_iter == 6


@pytest.mark.parametrize("seconds", [10.0, math.inf])
def test_rows_whose_codes_do_not_fit_are_left_out(seconds, clock, tmp_path, monkeypatch):
    monkeypatch.setattr(in_time, "share_for_boosting", lambda *_: 0.25)
    model = trained_in(seconds, tmp_path)
    assert abs(clock[-1] - N / 4) < 4 * math.sqrt(N / 4)
    assert len(clock) == (1 if math.isinf(seconds) else 2)
    assert model.params["n_rows"] == clock[-1]
    assert model.n_iter == 6


@pytest.mark.parametrize("seconds", [0.0, 0.4])
def test_few_rows_are_all_where_there_is_time_for_no_more(seconds, clock, tmp_path):
    model = trained_in(seconds, tmp_path)
    assert clock == [model.params["n_rows"]]
    assert model.n_iter == 6


def test_rows_of_one_class_teach_nothing(clock, tmp_path):
    """One row in 3,000 has the other class: all are taken, though there is no time."""
    assert "n_rows" not in trained_in(0.0, tmp_path, rare=True).params
    assert clock == [N]


def test_a_run_that_was_killed_goes_on_with_another_number_of_rows(clock, tmp_path):
    """The time that is left decides it, and trainings on some rows leave nothing behind to continue from."""
    for seconds in (1.2, 2.2):
        model = trained_in(seconds, tmp_path)
    assert clock[1] < clock[3] == model.params["n_rows"]
    assert clock[0] == clock[2]
    assert not [*tmp_path.rglob("checkpoint.npz")]


def test_a_fit_without_time_says_on_how_many_rows_it_was_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(in_time, "FEW_ROWS", FEW)
    rng = np.random.default_rng(1)
    X = rng.normal(size=(9000, 3))
    data = tmp_path / "d.csv"
    lines = [f"{a:.3f},{b:.3f},{c:.3f},{'yes' if a * b > 0 else 'no'}" for a, b, c in X]
    data.write_text("\n".join(["a,b,c,y", *lines]) + "\n")
    result = bigmc.fit(data, tmp_path / "m.model", label="y", time_limit=1e-9)
    assert result["learner"] == "boost"
    model = load_model(tmp_path / "m.model")
    assert 100 < model.params["n_rows"] < 300
    assert result["notes"] == [f"boosting had time or memory for {model.params['n_rows']:,} rows only"]
    assert result["test"]["accuracy"] > 0.8
