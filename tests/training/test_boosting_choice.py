"""Depth and rounds of boosting are those that held-out rows ask for."""

import math
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import bigmc
from bigmc.budget import MemoryLimitError
from bigmc.engine import ThreadEngine
from bigmc.learners.sparse import SparseLearner
from bigmc.solvers.boosting.memory_plan import CutKind, plan_memory
from bigmc.store.chosen_columns import frequent_columns
from bigmc.store.dataset import Dataset
from bigmc.store.files.work_file import read_work_file
from bigmc.store.sample import draw_rows
from bigmc.training.boosting import choose, rounds
from bigmc.training.boosting.choose import DEEPER, MOST_COLUMNS, ROUNDS, SLOWER, choose_boosting
from bigmc.training.boosting.rounds import Ladder
from bigmc.training.search import search as trials_of_search
from bigmc.training.search.limits import Limits
from bigmc.training.search.search import Search
from bigmc.training.search.trials import Candidate, Trial, better
from bigmc.training.search.winner import Winner

RNG = np.random.default_rng(3)


def searched(X, y, **limits):
    """Return a search on rows in memory, and the rows."""
    data = Dataset.from_arrays(X, y)
    return Search(data, ThreadEngine(1), Limits(1 << 30, **limits)), data


def additive(n=400):
    """Return rows whose labels are a sum of waves, without noise."""
    X = np.random.default_rng(5).normal(size=(n, 3))
    return X, (np.sin(3 * X).sum(axis=1) > 0).astype(int)


@pytest.fixture
def few_rounds(monkeypatch):
    """Try numbers of rounds that take no time, and return them."""
    for module in (choose, rounds):
        monkeypatch.setattr(module, "ROUNDS", (2, 4))
    monkeypatch.setattr(rounds, "MORE_ROUNDS", (8, 16))
    return 2, 4, 8, 16


def test_labels_that_are_mostly_chance_ask_for_few_rounds(tmp_path):
    X = RNG.normal(size=(400, 4))
    y = (X[:, 0] + 3 * RNG.normal(size=400) > 0).astype(int)
    found = choose_boosting(*searched(X, y), tmp_path)
    assert found.n_rounds in ROUNDS
    model = bigmc.MultiBoostClassifier(max_depth=4, n_rounds=60).fit(X, y)
    Z = RNG.normal(size=(4000, 4))
    truth = (Z[:, 0] + 3 * RNG.normal(size=4000) > 0).astype(int)
    chosen = bigmc.MultiBoostClassifier(**found.options.parameters()).fit(X, y)
    assert chosen.score(Z, truth) > model.score(Z, truth)


@pytest.mark.exhaustive
def test_small_steps_are_tried_where_few_rounds_of_the_log_loss_are_best(tmp_path):
    random = np.random.default_rng(4)
    X = random.normal(size=(400, 4))
    y = (X[:, 0] * X[:, 1] + 2 * random.normal(size=400) > 0).astype(int)
    found = choose_boosting(*searched(X, y), tmp_path)
    assert found.options.loss == "log_loss"
    assert found.n_rounds < ROUNDS[-1]
    assert any(f"rate-{SLOWER:g}" in file.name for file in tmp_path.iterdir())


def shells(n, seed, n_columns=8):
    """Return rows, and in which quarter the sum of the squares of four columns is."""
    X = np.random.default_rng(seed).normal(size=(n, n_columns))
    squares = (X[:, :4] ** 2).sum(axis=1)
    return X, np.digitize(squares, np.quantile(squares, [0.25, 0.5, 0.75]))


def mislabelled(truth, share):
    random = np.random.default_rng(2)
    return np.where(random.random(len(truth)) < share, random.integers(0, 4, len(truth)), truth)


@pytest.mark.exhaustive
def test_random_labels_are_part_of_the_loss(tmp_path):
    X, truth = shells(4500, 3)
    found = choose_boosting(*searched(X, mislabelled(truth, 0.3)), tmp_path)
    assert found.options.loss == "log_loss"
    assert found.options.label_noise == pytest.approx(0.3, abs=0.06)
    found.scores()  # in memory, from the models of the same loss
    assert any(f"log_loss-noise-{found.options.label_noise:g}" in file.name for file in tmp_path.iterdir())
    Z, other = shells(4000, 4)
    right = [
        bigmc.MultiBoostClassifier(**options.parameters()).fit(X, mislabelled(truth, 0.3)).score(Z, other)
        for options in (found.options, replace(found.options, label_noise=0.0))
    ]
    assert right[0] > right[1] + 0.02


def test_sums_of_waves_without_noise_ask_for_many_rounds(tmp_path, few_rounds):
    search, data = searched(*additive(800))
    found = choose_boosting(search, data, tmp_path)
    assert found.n_rounds in few_rounds[2:]
    # More rounds continue the models of fewer: as if these had been trained at once.
    [alone] = search.validation.judge(found.options, found.trial.candidate, lambda model: [model])
    assert replace(alone, seconds=0.0) == replace(found.trial, seconds=0.0)


def test_more_rounds_than_there_is_time_for_are_not_tried(tmp_path, few_rounds):
    search, data = searched(*additive(), seconds=0.0)
    assert choose_boosting(search, data, tmp_path).n_rounds == few_rounds[1]
    assert len(list(tmp_path.glob("boosting-*"))) == 1


def test_a_first_trial_that_takes_too_long_ends_with_the_rounds_it_has(tmp_path, few_rounds, monkeypatch):
    monkeypatch.setattr(trials_of_search, "FEWEST_SECONDS", 1e-9)
    search, data = searched(*additive(), seconds=0.0)
    assert choose_boosting(search, data, tmp_path) is None  # after one fold of five
    assert not list(tmp_path.glob("boosting-*"))
    monkeypatch.setattr(rounds, "TOO_LONG", math.inf)
    cut = choose_boosting(search, data, tmp_path)
    candidate, options = cut.trial.candidate, replace(cut.options, n_rounds=1)
    [none] = search.validation.judge(options, candidate, lambda model: [replace(model, stage=0)])
    assert replace(none, seconds=0.0) == replace(cut.trial, seconds=0.0)


def test_folds_of_a_linear_trial_share_the_time_that_is_left(monkeypatch):
    train, left = SparseLearner.train, []

    def timed(learner, rows, resources, **how):
        left.append(resources.ends - time.monotonic())
        return train(learner, rows, resources, **how)

    monkeypatch.setattr(SparseLearner, "train", timed)
    search, _ = searched(*additive(), seconds=500.0)
    search.trial_of(Candidate("scaled", "log_loss", 1e-3))
    assert len(left) == 5
    assert all(50.0 < seconds <= 100.0 for seconds in left)


def test_rows_with_too_many_scores_are_not_cross_validated():
    few, many = (
        Dataset.from_arrays(np.ones((6_000, 1), np.int8), np.arange(6_000) % n) for n in (2_000, 3_000)
    )
    assert [Limits(10**9, few_rows=6_000).cross_validates(data, 6_000) for data in (few, many)] == [
        True,
        False,
    ]


def test_trials_of_a_killed_run_are_not_made_again(tmp_path, monkeypatch, few_rounds):
    search, data = searched(*additive())
    found = choose_boosting(search, data, tmp_path)
    monkeypatch.setattr(search.validation, "judge", lambda *_, **__: pytest.fail("judged again"))
    again = choose_boosting(search, data, tmp_path)
    assert again == found
    assert again.trial.seconds == found.trial.seconds


def test_a_run_killed_between_two_trials_makes_the_same_choice(tmp_path, monkeypatch, few_rounds):
    data, judged = additive(), []
    for name in ("killed", "whole"):
        (tmp_path / name).mkdir()
    search, rows = searched(*data)
    judge = search.validation.judge

    def killed(*asked, **how):
        judged.append(asked)
        if len(judged) == 5:
            raise KeyboardInterrupt
        return judge(*asked, **how)

    monkeypatch.setattr(search.validation, "judge", killed)
    with pytest.raises(KeyboardInterrupt):
        choose_boosting(search, rows, tmp_path / "killed")
    again = choose_boosting(*searched(*data), tmp_path / "killed")
    whole = choose_boosting(*searched(*data), tmp_path / "whole")
    assert replace(again, trial=replace(again.trial, seconds=0.0)) == replace(
        whole, trial=replace(whole.trial, seconds=0.0)
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(("noise", "n_columns", "n_rounds"), [(0.2, 6, ROUNDS[-1]), (0.0, 8, ROUNDS[1])])
def test_boosting_that_a_linear_model_outdoes_is_not_boosted_further(tmp_path, noise, n_columns, n_rounds):
    """A plane in many dimensions: trees need hundreds of rounds, a linear model none. Without noise, trees
    err so much more after the first rounds that no others are tried."""
    generator = np.random.default_rng(6)
    X = generator.normal(size=(500, n_columns))
    y = (X.sum(axis=1) + noise * generator.normal(size=500) > 0).astype(int)
    search, data = searched(X, y)
    found = choose_boosting(search, data, tmp_path)
    assert found.n_rounds == n_rounds
    assert not list(tmp_path.glob("*-50*"))
    assert (n_rounds == ROUNDS[1]) == (len(list(tmp_path.glob("boosting-*"))) == 1)
    assert search.trial_of(search.first).log_loss < 0.5 * found.trial.log_loss


@pytest.mark.parametrize(("quality", "log_loss", "wins"), [(0.80, 0.4, 0), (0.81, 0.4, 1), (0.80, 0.35, 1)])
def test_a_later_trial_must_be_worth_it(quality, log_loss, wins):
    candidate = Candidate(None)
    trials = [Trial(candidate, 0.80, 0.4, None, 1), Trial(candidate, quality, log_loss, None, 1)]
    assert better(*trials, n_held_out=1000) is trials[wins]


@pytest.mark.exhaustive(keep=2)
@pytest.mark.parametrize(
    ("n_columns", "few_rows", "n_models", "n_asked"),
    [
        (12, None, 4, 6),
        (5, None, 4, 4),
        (4, None, 1, 4),
        (2, None, 1, 2),
        (12, 0, 1, 12),
        (240, None, 4, MOST_COLUMNS),
    ],
)
def test_few_rows_of_several_columns_have_the_mean_of_models(
    tmp_path, few_rounds, monkeypatch, n_columns, few_rows, n_models, n_asked
):
    monkeypatch.setattr(choose, "FAR_BETTER", 1.0)  # single models may be better on so few rows
    monkeypatch.setattr(choose, "_of_best_columns", lambda ladders: ladders)  # chance decides here
    X = np.random.default_rng(6).normal(size=(100, n_columns))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    search, data = searched(X, y, few_rows=few_rows)
    found = choose_boosting(search, data, tmp_path)
    assert search.validation.cross_validates == (few_rows is None)
    assert found.options.n_models == n_models
    assert round(found.options.column_share * n_columns) == n_asked
    said = Winner("boost", None, found.trial.calibration, boosting=found.options).settings
    assert said.endswith("mean of 4") == (n_models > 1)


def test_labels_that_depend_on_many_cuts_together_have_deeper_trees(tmp_path, few_rounds):
    """Every cell of a grid of 4 x 4 x 4 has a label of its own: no sum of few shallow trees is that."""
    X = np.random.default_rng(5).uniform(-1, 1, size=(600, 3))
    cells = np.random.default_rng(6).integers(0, 2, (4, 4, 4))
    y = cells[tuple(((X + 1) * 2).astype(int).T)]
    assert choose_boosting(*searched(X, y), tmp_path).options.max_depth == DEEPER


@pytest.mark.exhaustive
@pytest.mark.parametrize("sharp", [True, False])
def test_labels_that_change_at_sharp_values_of_several_columns_have_one_model(tmp_path, few_rounds, sharp):
    """In a parity each round needs all three columns, and as many cuts as there may be."""
    X, random = RNG.normal(size=(1500, 6)), np.random.default_rng(8)
    three = X[:, :3] > np.array([0.31, 0.17, -0.23])
    y = three.sum(axis=1) % 2 if sharp else (X.sum(axis=1) + random.normal(size=1500) > 0).astype(int)
    options = choose_boosting(*searched(X, y), tmp_path).options
    assert (options.n_models == 1) == (options.column_share == 1.0) == (options.max_bins == 255) == sharp


@pytest.mark.exhaustive
@pytest.mark.parametrize(("similar", "more", "share"), [(True, 10, 0.1), (False, 10, 0.5), (False, 4, 0.4)])
def test_few_of_many_columns_are_asked_in_a_round_where_that_is_as_good(
    tmp_path, few_rounds, monkeypatch, similar, more, share
):
    """Of sixty columns that show three hidden ones six do; two that matter together are rarely among six."""
    monkeypatch.setattr(choose, "MOST_COLUMNS", 6)
    monkeypatch.setattr(choose, "MORE_COLUMNS", more)
    monkeypatch.setattr(choose, "FAR_BETTER", 1.0)  # single models of all columns are better still
    generator = np.random.default_rng(3 if similar else 5)
    if similar:
        shown = generator.normal(size=(200, 3))
        X = shown[:, np.arange(60) % 3] + 1.5 * generator.normal(size=(200, 60))
    else:
        shown = X = generator.normal(size=(300, 60))
    y = (shown[:, 0] * shown[:, 1] > 0).astype(int)
    assert choose_boosting(*searched(X, y), tmp_path).options.column_share == share


@pytest.mark.exhaustive
def test_rounds_have_the_columns_of_the_best_cuts_where_few_of_many_columns_matter(
    tmp_path, few_rounds, monkeypatch
):
    monkeypatch.setattr(choose, "MOST_COLUMNS", 6)
    monkeypatch.setattr(choose, "BEST_CUTS", 30)
    X = np.random.default_rng(5).normal(size=(150, 120))
    search, data = searched(X, (X[:, 7] + X[:, 80] > 0).astype(int))
    options = choose_boosting(search, data, tmp_path).options
    assert options.best_cuts == 30
    assert options.column_share in (0.5, 1.0)  # of averaged models, or single ones
    monkeypatch.setattr(Ladder, "_judged", None)  # a fit that is run again has the same trials
    assert choose_boosting(search, data, tmp_path).options == options


@pytest.mark.exhaustive
@pytest.mark.parametrize("n_columns", [1200, 60])
def test_penalties_are_tried_on_small_tables_with_more_columns_than_rows(n_columns):
    """A ridge of so many columns is far behind boosting, and does not tell what a few of them can do."""
    X = np.random.default_rng(3).normal(size=(120, n_columns))
    features = {"dense": [f"x{j}" for j in range(n_columns)]}
    data = Dataset.from_arrays(X, (X[:, 7] + X[:, 50] > 0).astype(int), features=features)
    result = Search(data, ThreadEngine(1), Limits(1 << 30)).run(rival=0.99)
    if n_columns > len(X):
        assert result.best.candidate.alpha > 0
        assert result.best.quality > result.trials[0].quality + 0.1
    else:
        assert len(result.trials) == 1


@pytest.mark.parametrize(("similar", "share"), [(True, 0.1), (False, 1.0)])
def test_some_of_many_columns_are_asked_of_many_rows_where_that_is_as_good(
    tmp_path, few_rounds, monkeypatch, similar, share
):
    """Rows that are not cross-validated: all columns are asked in every round where some are not enough."""
    monkeypatch.setattr(choose, "MOST_COLUMNS", 6)
    generator = np.random.default_rng(4)
    shown = generator.normal(size=(600, 3 if similar else 60))
    X = shown[:, np.arange(60) % 3] + 0.1 * generator.normal(size=(600, 60)) if similar else shown
    y = (shown[:, 0] + shown[:, 1] > 0).astype(int)
    search, data = searched(X, y, few_rows=0)
    assert choose_boosting(search, data, tmp_path).options.column_share == share
    assert {"share-0.1" in file.name for file in tmp_path.glob("boosting-2-*")} == {True, False}
    # A fit that is run again has the same trials, and makes none.
    monkeypatch.setattr(Ladder, "_judged", None)
    assert choose_boosting(search, data, tmp_path).options.column_share == share


@pytest.mark.parametrize("behind", [True, False])
def test_deeper_trees_that_are_behind_at_first_are_given_up(tmp_path, monkeypatch, behind):
    for module in (choose, rounds):
        monkeypatch.setattr(module, "ROUNDS", (2, 4, 8))
    monkeypatch.setattr(rounds, "MORE_ROUNDS", ())
    if behind:
        X, y = additive(600)
    else:
        X = np.random.default_rng(5).uniform(-1, 1, size=(2000, 3))
        y = np.random.default_rng(6).integers(0, 2, (4, 4, 4))[tuple(((X + 1) * 2).astype(int).T)]
    search, data = searched(X, y, few_rows=0)
    assert (choose_boosting(search, data, tmp_path).options.max_depth == DEEPER) != behind
    tried = {tuple(file.stem.split("-")[3:5]) for file in tmp_path.glob(f"boosting-{DEEPER}-*")}
    assert ("2", "4") in tried
    assert (("8",) in {rounds[:1] for rounds in tried}) != behind


def test_labels_of_two_columns_together_are_learned(tmp_path):
    """Trees that may ask one of the two columns at a time tell nothing."""
    X = np.random.default_rng(7).uniform(-1, 1, size=(600, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    assert choose_boosting(*searched(X, y), tmp_path).trial.quality > 0.9


@pytest.mark.exhaustive
@pytest.mark.parametrize("affordable", [True, False])
def test_columns_of_mostly_zeros_are_asked_together_unless_there_are_many(tmp_path, monkeypatch, affordable):
    values = np.random.default_rng(4).integers(0, 12, (2000, 2))
    X = sparse.csr_array(np.hstack([values[:, :1] == np.arange(12), values[:, 1:] == np.arange(12)]) * 1.0)
    monkeypatch.setattr(choose, "MOST_ZEROS", 24 if affordable else 23)
    found = choose_boosting(*searched(X, values.sum(axis=1) % 2, few_rows=0), tmp_path)
    assert (found.options.max_depth > 1) == affordable
    assert (found.trial.quality > 0.95) == affordable  # no single column tells the parity


def test_boosting_competes_beside_texts(tmp_path):
    """Labels are the product of a number's sign and a word: no sum of weights tells them."""
    rng = np.random.default_rng(9)
    label, word, rare = rng.integers(0, 2, 800), rng.integers(0, 2, 800), rng.integers(0, 200, 800)
    size = np.where(label == word, 1, -1) * rng.uniform(0.2, 1, 800)
    text = [f"{('yes', 'no')[w]} rare{r} {i}" for i, (w, r) in enumerate(zip(word, rare, strict=True))]
    frame = pd.DataFrame({"text": text, "size": size, "label": label})
    result = bigmc.fit(frame.iloc[:600], tmp_path / "m", label="label")
    assert result["columns"] == {"text": ["text"], "dense": ["size"]}
    assert result["learner"] == "boost"
    model, new = bigmc.load_model(tmp_path / "m"), frame.iloc[600:]
    assert np.mean(model.predict(new) == new.label) > 0.95
    counts = bigmc.open_dataset(tmp_path / "m.dataset").column_nnz()
    assert (counts[model.model_.used_features] >= choose.MIN_FREQUENCY * 600).all()


def test_rare_values_of_categories_are_not_asked(tmp_path):
    """Of 200 names one says the label, which 60 rows have; two rows have each other one."""
    rng = np.random.default_rng(11)
    names = np.array(["often"] * 60 + [f"n{i}" for i in range(200)] * 2)
    frame = pd.DataFrame({"name": names, "size": rng.normal(size=460)})
    frame["label"] = np.where(frame.name == "often", 1, frame["size"] > 1).astype(int)
    data = bigmc.ingest(
        frame, to=tmp_path / "d", label="label", dense="size", one_hot="name", split={"all": 1.0}
    )
    search = Search(data["all"], ThreadEngine(1), Limits(1 << 30))
    options = choose_boosting(search, data["all"], tmp_path).options
    assert options.min_frequency == pytest.approx(choose.RARE)
    model = bigmc.MultiBoostClassifier(**options.parameters()).fit(data["all"]).model_
    asked = {data.features["columns"][feature] for feature in model.used_features}
    assert asked <= {"size", "name=often"}
    assert "name=often" in asked


@pytest.mark.parametrize(
    ("features", "n_rows", "expected"),
    [
        ({}, 9, 0.0),
        ({"one_hot": [1]}, 1000, 0.01),
        ({"one_hot": [1]}, 40_000, 0.001),
        ({"hasher": 1, "dense": [1]}, 9, 0.02),
    ],
)
def test_the_larger_the_data_the_rarer_what_trees_ask(features, n_rows, expected):
    data = Dataset.from_arrays(np.zeros((n_rows, 1)), np.arange(n_rows) % 2, features=features)
    assert choose._least_frequency(data) == pytest.approx(expected)


@pytest.mark.exhaustive
def test_beside_texts_boosting_is_tried_where_codes_of_frequent_words_stay_in_memory(tmp_path):
    text = [f"word{i % 7} {i}" for i in range(200)]
    frame = pd.DataFrame({"text": text, "size": np.arange(200.0), "label": np.arange(200) % 2})
    asked = {"label": "label", "dense": "size", "split": {"all": 1.0}}
    mixed = bigmc.ingest(frame, to=tmp_path / "mixed", text="text", **asked)["all"]
    assert choose.share_for_boosting(mixed, 10**9) == 1.0
    assert choose.share_for_boosting(mixed, 60 * 10**6) == 1.0  # of 2^18 features, seven words are frequent
    assert choose.share_for_boosting(mixed, 30 * 10**6) == 0.0
    everywhere = bigmc.ingest(
        frame.assign(text=" ".join(f"w{i}" for i in range(50_000))), to=tmp_path / "all", text="text", **asked
    )["all"]
    assert choose.share_for_boosting(everywhere, 60 * 10**6) == 0.0
    table = bigmc.ingest(frame, to=tmp_path / "table", **asked)["all"]
    assert choose.share_for_boosting(table, 60 * 10**6) == 1.0
    texts = bigmc.ingest(frame, to=tmp_path / "texts", label="label", text="text", split={"all": 1.0})["all"]
    assert choose.share_for_boosting(texts, 10**9) == 0.0


def keeps_codes_of(rows, memory):
    """Whether a training on these very rows keeps codes, by its own plan."""
    columns = frequent_columns(rows, choose.MIN_FREQUENCY)
    asked = {"depth": max(choose.DEPTHS), "cut_kind": CutKind.STUMP, "tol": 1e-3}
    try:
        plan = plan_memory(columns, limit=memory, left_out=rows.n_features - columns.n_features, **asked)
    except MemoryLimitError:
        return False
    return plan.keep_blocks


def test_where_codes_of_all_rows_do_not_fit_boosting_learns_from_some(tmp_path, monkeypatch):
    """As many as really fit when they are drawn, of a half, a quarter and so on."""
    rng = np.random.default_rng(5)
    n = 120_000
    columns = {f"x{j}": rng.normal(size=n).astype(np.float32) for j in range(10)}
    places = {"place": rng.integers(0, 400, n).astype(str), "label": rng.integers(0, 2, n)}
    asked = {"label": "label", "dense": "x*", "categorical": "place", "hash_bits": 12, "split": {"all": 1.0}}
    mixed = bigmc.ingest(pd.DataFrame(columns | places), to=tmp_path / "d", **asked)["all"]
    memory = 62 * 10**6
    monkeypatch.setattr(choose, "FEWEST_SAMPLED", 1000)
    share = choose.share_for_boosting(mixed, memory)
    assert 0.0 < share <= 0.5
    assert keeps_codes_of(draw_rows(mixed, share, 0, ThreadEngine(1))[0], memory * 3 // 4)
    assert not keeps_codes_of(draw_rows(mixed, 2 * share, 0, ThreadEngine(1))[0], memory * 3 // 4)
    assert choose.share_for_boosting(mixed, 10**9) == 1.0
    monkeypatch.setattr(choose, "FEWEST_SAMPLED", 200_000)
    assert choose.share_for_boosting(mixed, memory) == 0.0


def far_centres(n_rows, n_classes=30, n_columns=20):
    """Return rows around centres that a linear model tells apart by all columns together, trees hardly."""
    rng = np.random.default_rng(8)
    labels = rng.integers(n_classes, size=n_rows)
    return rng.normal(size=(n_classes, n_columns))[labels] + 0.5 * rng.normal(
        size=(n_rows, n_columns)
    ), labels


def counted_rounds(search, monkeypatch):
    """Return a list of the rounds of every boosted model that a search will have trained."""
    judge, asked = search.validation.judge, []

    def counted(options, *args, **more):
        asked.append((options.n_rounds, options.n_models))
        return judge(options, *args, **more)

    monkeypatch.setattr(search.validation, "judge", counted)
    return asked


@pytest.mark.exhaustive
@pytest.mark.parametrize("few_rows", [None, 0])
def test_few_rounds_of_one_model_are_enough_where_a_linear_model_is_ahead(tmp_path, monkeypatch, few_rows):
    monkeypatch.setattr(choose, "PROBED_WORK", 1_000)
    search, data = searched(*far_centres(900), few_rows=few_rows)
    asked = counted_rounds(search, monkeypatch)
    assert choose_boosting(search, data, tmp_path) is None
    assert asked == [(ROUNDS[0], 1)]
    assert not search.lacked_time


@pytest.mark.exhaustive
def test_boosting_that_errs_more_is_tried_where_its_sum_gains(tmp_path, few_rounds, monkeypatch):
    monkeypatch.setattr(choose, "PROBED_WORK", 1_000)
    rng = np.random.default_rng(9)
    X, labels = far_centres(500, 12)
    hidden = rng.integers(0, 2, size=(len(X), 2))  # half of the rows have the label of another centre
    X = np.column_stack([X, hidden])
    search, data = searched(X, (labels + 6 * (hidden[:, 0] ^ hidden[:, 1])) % 12)
    first = search.trial_of(search.first)
    found = choose_boosting(search, data, tmp_path)
    small = read_work_file(tmp_path / "boosting-4-100000-2-share-0.5.json")
    assert small[0]["quality"] < first.quality
    assert found is not None


def test_boosting_is_tried_where_no_model_learns_soon(tmp_path, few_rounds, monkeypatch):
    monkeypatch.setattr(choose, "PROBED_WORK", 1_000)
    X = np.random.default_rng(2).normal(size=(900, 6))
    found = choose_boosting(*searched(X, (X[:, :3] > 0).sum(axis=1) % 2), tmp_path)
    assert found is not None
