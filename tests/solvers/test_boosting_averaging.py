"""Means of boosted models with drawn columns, against the models one by one and the objective's formula."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse

import bigmc
from bigmc.engine import Resources, ThreadEngine
from bigmc.errors import BigmcError
from bigmc.learners import learner_of
from bigmc.options.learners import BoostOptions
from bigmc.solvers import boosting
from bigmc.solvers.boosting import BoostingOptions
from bigmc.solvers.boosting import rounds as boosting_rounds
from bigmc.solvers.boosting.binning import BinnedSource
from bigmc.solvers.boosting.trees import TreeOracle
from bigmc.solvers.checkpoint import MemoryCheckpoint
from bigmc.solvers.loop import RunContext
from bigmc.store.dataset import Dataset
from bigmc.store.files.checkpoint import FileCheckpoint

LIMIT = 10**9
OPTIONS = {"C": 1e3, "max_depth": 2, "pool": 3, "max_sweeps": 1, "inner_rounds": 2, "column_share": 0.4}


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(8)
    X = generator.normal(size=(300, 10))
    y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * generator.normal(size=300) > 0).astype(int) + (X[:, 3] > 1)
    return X, y


@pytest.fixture
def dataset(rows):
    return Dataset.from_arrays(*rows)


def solved(dataset, n_models=1, checkpoint=None, **options):
    asked = BoostingOptions(**{**OPTIONS, **options})
    context = RunContext(ThreadEngine(1), checkpoint)
    return boosting.solve_averaged(dataset, asked, n_models, LIMIT, context)


def scores(solution, X, stage):
    """Scores by walking down every tree, one sample and one learner at a time."""
    found = np.zeros((len(X), 3))
    stages = solution.stages
    for member, weight in zip(*stages.stage(stage), strict=True):
        learner, cuts = stages.learners.take(member), solution.thresholds[member]
        for i, x in enumerate(X):
            node = 0
            while node < len(cuts):
                above = learner.feature[node] >= 0 and x[learner.feature[node]] > cuts[node]
                node = 2 * node + 1 + above
            answer = learner.leaf[node - len(cuts)] * stages.signs[member]
            found[i, stages.classes[member]] += weight * answer
    return found


def test_the_mean_scores_as_its_models_do_on_average(rows, dataset):
    X, few = rows[0], rows[0][:40]
    mean = solved(dataset, n_models=3, n_rounds=4)
    alone = [solved(dataset, n_rounds=4, draw=number) for number in range(3)]
    assert any(len(one.stages.classes) != len(alone[0].stages.classes) for one in alone[1:]) or (
        np.abs(scores(alone[0], few, 4) - scores(alone[1], few, 4)).max() > 0.01
    )
    for stage in (1, 4):
        expected = np.mean([scores(one, few, stage) for one in alone], axis=0)
        np.testing.assert_allclose(scores(mean, few, stage), expected, atol=1e-12)
    assert len(X) == dataset.n_samples


def test_of_models_that_end_earlier_the_last_stage_counts(rows):
    """A column of the labels ends those that draw it."""
    X = rows[0][:, :4].copy()
    y = (X[:, 0] > 0).astype(int)
    data = Dataset.from_arrays(X, y)
    options = {"n_rounds": 12, "C": 50.0, "column_share": 0.25, "tol": 0.05}
    alone = [solved(data, draw=number, **options) for number in range(3)]
    ends = [len(one.stages) for one in alone]
    mean = solved(data, n_models=3, **options)
    assert len(set(ends)) > 1, "no model ended earlier: the test shows nothing"
    assert len(mean.stages) == max(ends)
    few, last = X[:20], max(ends) - 1
    expected = np.mean([scores(one, few, end - 1) for one, end in zip(alone, ends, strict=True)], axis=0)
    np.testing.assert_allclose(scores(mean, few, last), expected, atol=1e-12)


def test_the_objective_reported_bounds_that_of_the_mean(rows, dataset):
    X, y = rows
    mean = solved(dataset, n_models=3, n_rounds=3)
    F = scores(mean, X, 3)
    losses = np.exp(F - F[np.arange(len(y)), y][:, np.newaxis])
    losses[np.arange(len(y)), y] = 0.0
    _, weights = mean.stages.stage(3)
    value = weights.sum() + OPTIONS["C"] / (2 * len(y)) * losses.sum()
    alone = [solved(dataset, n_rounds=3, draw=number).objective for number in range(3)]
    assert value <= mean.objective
    assert mean.objective == pytest.approx(np.mean(alone))
    assert mean.certificate.lower == -np.inf
    assert not any(name.startswith("restricted") for name in mean.history[-1])


def test_bins_are_found_once_for_all_models(rows, dataset, monkeypatch):
    found, find = [], BinnedSource._find
    monkeypatch.setattr(BinnedSource, "_find", lambda *given: found.append(1) or find(*given))
    mean = solved(dataset, n_models=3, n_rounds=2)
    n_found = len(found)
    alone = [solved(dataset, n_rounds=2, draw=number) for number in range(3)]
    assert 3 * n_found == len(found) - n_found
    expected = np.mean([scores(solution, rows[0][:50], 2) for solution in alone], axis=0)
    np.testing.assert_allclose(scores(mean, rows[0][:50], 2), expected, atol=1e-12)


def test_trees_ask_the_columns_drawn_for_their_round(dataset):
    options, usable = BoostingOptions(**OPTIONS), np.ones(10, np.bool_)
    solution = solved(dataset, n_rounds=5)
    known, drawn_before = set(), []
    for number in range(5):
        drawn = options.drawn_columns(usable, number)
        drawn_before.append(drawn.tobytes())
        assert drawn.sum() == 4
        members = set(solution.stages.stage(number + 1)[0].tolist())
        asked = solution.stages.learners.feature[sorted(members - known)]
        assert drawn[asked[asked >= 0]].all()
        assert len(members - known) > 0
        known |= members
    assert len(set(drawn_before)) > 1
    others = dataclasses.replace(options, draw=1), dataclasses.replace(options, seed=1)
    for other in others:
        differ = [other.drawn_columns(usable, k) != options.drawn_columns(usable, k) for k in range(3)]
        assert np.any(differ)


def test_the_share_is_one_of_the_columns_that_may_be_used():
    """Of a million columns ten may be used: four of them are drawn, each as often as the others."""
    options, usable = BoostingOptions(**OPTIONS), np.zeros(1_000_000, np.bool_)
    usable[::100_000] = True
    drawn = [np.flatnonzero(options.drawn_columns(usable, number)) for number in range(200)]
    assert {len(places) for places in drawn} == {4}
    places, counts = np.unique(np.concatenate(drawn), return_counts=True)
    np.testing.assert_array_equal(places, np.flatnonzero(usable))
    assert 50 < counts.min() <= counts.max() < 110  # 80 on the average, with a standard deviation of 7
    assert dataclasses.replace(options, column_share=1.0).drawn_columns(usable, 0) is None
    twice = np.flatnonzero(options.drawn_columns(usable, 0, 2))
    assert set(drawn[0]) < set(twice)
    assert len(twice) == 8
    assert options.drawn_columns(usable, 0, 3) is None


def test_where_drawn_columns_are_worth_nothing_all_are_looked_at(rows):
    """Of constant columns and one that tells the classes apart, the draw misses that one for rounds."""
    X = np.zeros((300, 20))
    X[:, 7] = rows[0][:, 0]
    data = Dataset.from_arrays(X, (X[:, 7] > 0).astype(int))
    solution = solved(data, n_rounds=1, column_share=0.05)
    options = BoostingOptions(**{**OPTIONS, "column_share": 0.05})
    assert not options.drawn_columns(np.ones(20, np.bool_), 0)[7]
    assert 7 in solution.stages.learners.feature


@pytest.mark.parametrize(("enough", "last"), [(8, 8), (1000, 20)])
def test_a_round_searches_more_columns_until_they_are_enough(monkeypatch, enough, last):
    """One column tells the classes apart without an error: after some rounds nothing is worth adding."""
    monkeypatch.setattr(boosting_rounds, "_ENOUGH_COLUMNS", enough)
    searched, price = [], TreeOracle.price

    def seen(oracle, duals, n_best, columns=None):
        searched.append(20 if columns is None else int(columns.sum()))
        return price(oracle, duals, n_best, columns)

    monkeypatch.setattr(TreeOracle, "price", seen)
    X = np.random.default_rng(0).normal(size=(60, 20))
    solution = solved(Dataset.from_arrays(X, (X[:, 3] > 0).astype(int)), n_rounds=100, column_share=0.1)
    assert solution.n_iter < 100
    assert set(searched) <= {2, 4, 8, 16, 20}
    assert searched[-1] == last
    assert searched[searched.index(4) - 1] == 2


def test_trees_ask_the_columns_of_the_best_cuts_alone():
    generator = np.random.default_rng(1)
    X = generator.integers(0, 2, (400, 60)).astype(float)
    y = (X[:, 4] + X[:, 17] + X[:, 30] > 1).astype(int)
    y[generator.random(400) < 0.1] ^= 1
    right = np.abs((y[:, np.newaxis] == X).sum(axis=0) - 200)
    assert set(np.argsort(-right)[:3]) == {4, 17, 30}
    assert np.sort(right)[-3] > 2 * np.sort(right)[-4], "others are as good: the test shows nothing"
    asked = {"n_rounds": 8, "max_depth": 4, "column_share": 1.0}
    features = solved(Dataset.from_arrays(X, y), best_cuts=3, **asked).stages.learners.feature
    assert set(features[features >= 0]) == {4, 17, 30}
    whole = solved(Dataset.from_arrays(X, y), **asked).stages.learners.feature
    assert len(set(whole[whole >= 0])) > 3


def test_a_resumed_run_asks_the_columns_of_the_best_cuts_again(dataset):
    whole = solved(dataset, n_models=2, n_rounds=6, best_cuts=3)
    checkpoint = MemoryCheckpoint()
    solved(dataset, n_models=2, n_rounds=2, best_cuts=3, checkpoint=checkpoint)
    resumed = solved(dataset, n_models=2, n_rounds=6, best_cuts=3, checkpoint=checkpoint)
    one, other = whole.stages.arrays(), resumed.stages.arrays()
    assert all((one[name] == other[name]).all() for name in one)


@pytest.mark.parametrize("column_share", [1.0, 0.4])
def test_trees_ask_frequent_features_alone(column_share):
    """With features of fewer samples left out of the matrix, and all asked, the trees are the same."""
    generator = np.random.default_rng(4)
    X = generator.normal(size=(300, 12)) * (generator.random((300, 12)) < np.linspace(0.02, 0.6, 12))
    y = (X.sum(axis=1) > 0).astype(int) + (X[:, 1] > 0)
    frequent = (X != 0).mean(axis=0) >= 0.25
    assert 3 < frequent.sum() < 10
    asked = {"n_rounds": 3, "column_share": column_share, "min_frequency": 0.25}
    found = solved(Dataset.from_arrays(scipy.sparse.csr_array(X), y), **asked)
    features = found.stages.learners.feature
    assert frequent[features[features >= 0]].all()
    if column_share == 1.0:
        X[:, ~frequent] = 0.0
        only = solved(Dataset.from_arrays(scipy.sparse.csr_array(X), y), n_rounds=3, column_share=1.0)
        np.testing.assert_array_equal(features, only.stages.learners.feature)
        np.testing.assert_array_equal(found.stages.weights, only.stages.weights)


@pytest.mark.parametrize("block_bytes", [None, 4_000])
def test_trees_of_frequent_features_are_those_of_a_matrix_of_them_alone(block_bytes):
    """Features 0, 2, 4 … of 24 are rare; codes are kept, or blocks of three columns are streamed."""
    generator = np.random.default_rng(5)
    share = np.where(np.arange(24) % 2, 0.5, 0.05)
    X = generator.integers(1, 9, (300, 24)) * (generator.random((300, 24)) < share)
    y = (X[:, 1] > X[:, 3]).astype(int) + (X[:, 21] > 5)
    options = {"C": 1e3, "max_depth": 3, "pool": 3, "n_rounds": 4}
    found, only = (
        boosting.solve(
            Dataset.from_arrays(scipy.sparse.csr_array(matrix), y, shard_rows=128),
            BoostingOptions(**options, min_frequency=least),
            LIMIT,
            RunContext(ThreadEngine(2)),
            block_bytes=block_bytes,
        )
        for matrix, least in ((X, 0.25), (X[:, 1::2], 0.0))
    )
    features, numbers = found.stages.learners.feature, only.stages.learners.feature
    assert (numbers >= 0).any()
    np.testing.assert_array_equal(features, np.where(numbers >= 0, 2 * numbers + 1, numbers))
    np.testing.assert_array_equal(found.thresholds, only.thresholds)
    np.testing.assert_array_equal(found.stages.weights, only.stages.weights)
    assert found.bytes_read == only.bytes_read  # nothing of other columns


@pytest.mark.parametrize("given", [{"min_frequency": 1.0}, {"min_frequency": -0.1}])
def test_shares_of_rows_that_cannot_be_are_refused(dataset, given):
    with pytest.raises(BigmcError, match=r"min_frequency is .* give a number from 0"):
        bigmc.MultiBoostClassifier(max_depth=2, **given).fit(dataset)


class Interrupted(MemoryCheckpoint):
    """Stops the run after so many saves."""

    def __init__(self, left):
        super().__init__()
        self.left = left

    def save(self, meta, arrays):
        super().save(meta, arrays)
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def assert_same(one, other):
    expected, found = one.stages.arrays(), other.stages.arrays()
    assert all((expected[name] == found[name]).all() for name in expected)
    assert (one.thresholds == other.thresholds).all()
    np.testing.assert_equal(one.history, other.history)
    assert (one.objective, one.stage, one.n_passes) == (other.objective, other.stage, other.n_passes)


@pytest.mark.parametrize("saves", [1, 3, 5, 6, 9, 15])
def test_a_run_stopped_in_any_model_goes_on_to_the_same_bits(dataset, saves):
    whole = solved(dataset, n_models=3, n_rounds=4)
    checkpoint = Interrupted(saves)
    with pytest.raises(KeyboardInterrupt):
        solved(dataset, n_models=3, n_rounds=4, checkpoint=checkpoint)
    again = solved(dataset, n_models=3, n_rounds=4, checkpoint=checkpoint)
    for solution in (whole, again):
        for entry in solution.history:
            del entry["bytes_read"]  # learners found again are read once more
    assert_same(whole, again)


@pytest.mark.parametrize("on_disk", [False, True])
def test_more_rounds_go_on_with_every_model(dataset, tmp_path, on_disk):
    checkpoint = FileCheckpoint(tmp_path) if on_disk else MemoryCheckpoint()
    solved(dataset, n_models=3, n_rounds=2, checkpoint=checkpoint)
    longer = solved(dataset, n_models=3, n_rounds=5, checkpoint=checkpoint)
    whole = solved(dataset, n_models=3, n_rounds=5)
    for solution in (whole, longer):
        for entry in solution.history:
            del entry["bytes_read"]
    assert_same(whole, longer)


def test_the_stage_of_fewest_errors_is_that_of_the_mean_of_the_models(dataset):
    mean = solved(dataset, n_models=2, n_rounds=6, validation_fraction=0.3)
    alone = [solved(dataset, n_rounds=6, draw=k, validation_fraction=0.3).history for k in range(2)]
    errors = np.mean([[entry["held_error"] for entry in history] for history in alone], axis=0)
    assert mean.stage == int(np.argmin(errors))


def test_the_mean_errs_less_than_one_model_of_all_columns(rows):
    generator = np.random.default_rng(9)
    X = generator.normal(size=(2200, 20))
    y = (X[:, :6].sum(axis=1) + 2 * generator.normal(size=2200) > 0).astype(int)
    one = bigmc.MultiBoostClassifier(max_depth=4, n_rounds=20).fit(X[:200], y[:200])
    options = {"max_depth": 4, "n_rounds": 20, "column_share": 0.5}
    mean = bigmc.MultiBoostClassifier(n_models=8, **options).fit(X[:200], y[:200])
    assert mean.score(X[200:], y[200:]) > one.score(X[200:], y[200:]) + 0.01


def test_c_is_chosen_and_the_run_goes_on_after_a_stop(dataset):
    learner = learner_of(BoostOptions(C="auto", max_depth=2, n_rounds=3, column_share=0.5, n_models=2))
    resources = Resources(ThreadEngine(1), LIMIT)
    whole = learner.train(dataset, resources).model
    saves = Interrupted(-1)
    learner.train(dataset, resources, checkpoint=saves)
    checkpoint = Interrupted(-saves.left - 3)  # in the second model, after C was chosen
    with pytest.raises(KeyboardInterrupt):
        learner.train(dataset, resources, checkpoint=checkpoint)
    again = learner.train(dataset, resources, checkpoint=checkpoint).model
    assert whole.C == again.C
    expected, found = whole.to_arrays(), again.to_arrays()
    assert all((expected[name] == found[name]).all() for name in expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_models": 2}, "averaged models would all use the same columns; give a column_share below 1"),
        ({"n_models": 0, "column_share": 0.5}, "n_models is 0"),
        ({"column_share": 0.0}, "column_share is 0.0; give a number above 0, at most 1"),
        ({"column_share": 0.5, "max_depth": 1}, "learners of one cut look at all columns"),
        ({"best_cuts": 5, "max_depth": 1}, "learners of one cut look at all columns"),
        ({"best_cuts": 0}, "best_cuts is 0"),
    ],
)
def test_what_cannot_be_averaged_is_refused(rows, options, message):
    with pytest.raises(BigmcError, match=message):
        bigmc.MultiBoostClassifier(**{"max_depth": 3, **options}).fit(*rows)
