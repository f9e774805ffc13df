"""The boosted classifier as its users meet it: arrays, datasets, files, commands, kills, limits."""

import json
import os
import signal
import sys

import numpy as np
import pytest
import scipy.sparse
from measured import said_number
from scipy.special import softmax
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import train_test_split
from sklearn.utils.estimator_checks import parametrize_with_checks

import bigmc
from bigmc import api
from bigmc.engine import ThreadEngine
from bigmc.errors import BigmcError, DataError, ModelError
from bigmc.estimators import MultiBoostClassifier
from bigmc.model import BoostedModel, load_model
from bigmc.solvers import loop
from bigmc.solvers.boosting import GRID, held_out
from bigmc.store.dataset import Dataset


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([MultiBoostClassifier(n_rounds=15, max_depth=1)])
def test_scikit_learn_compatibility(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    names = np.array(["nil", *"abcdefghi"])[y]
    return train_test_split(X, names, test_size=0.25, random_state=0, stratify=y)


def walk(model, X):
    """The scores of a model, learner by learner, in plain Python."""
    trees, weights = model.trees, model.stage_weights(model.stage)
    scores = np.zeros((len(X), model.n_classes))
    for k in np.flatnonzero(weights):
        for i, x in enumerate(X):
            node = 0
            while node < trees.node_feature.shape[1]:
                place = trees.node_feature[k, node]
                above = False
                if place >= 0:
                    edges = trees.edges[trees.edge_starts[place] : trees.edge_starts[place + 1]]
                    value = x[trees.features[place]]
                    cut = trees.node_cut[k, node]
                    if np.isnan(value):
                        above = not trees.missing_below[k, node]
                    else:
                        above = cut < len(edges) and value > edges[cut]
                node = 2 * node + 1 + above
            leaf = trees.leaf[k, node - trees.node_feature.shape[1]]
            scores[i, trees.learner_class[k]] += weights[k] * leaf
    return scores


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("options", "accuracy"),
    [
        ({"C": 1e4, "n_rounds": 8, "max_depth": 1}, 0.94),
        ({"C": 1e4, "n_rounds": 8, "family": "ray"}, 0.92),
        ({"max_depth": 3, "n_rounds": 6, "pool": 10}, 0.95),
        ({"C": 1e8, "max_depth": 1, "pool": 1, "max_sweeps": 1, "inner_rounds": 1, "n_rounds": 40}, 0.9),
    ],
    ids=["stumps", "rays", "trees", "stage-wise"],
)
def test_it_learns_and_what_it_saved_is_what_it_learned(digits, options, accuracy, tmp_path):
    X, X_test, y, y_test = digits
    fitted = MultiBoostClassifier(**options).fit(X, y)
    assert fitted.score(X_test, y_test) >= accuracy
    scores = fitted.decision_function(X)
    np.testing.assert_allclose(scores[:40], walk(fitted.model_, X[:40]), atol=1e-10)
    np.testing.assert_allclose(fitted.decision_function(scipy.sparse.csr_array(X)), scores, atol=1e-12)
    np.testing.assert_allclose(fitted.decision_function(Dataset.from_arrays(X)), scores, atol=1e-12)
    # The scores of the model give the objective that was reached.
    codes = np.searchsorted(fitted.classes_, y)
    mu = np.exp(scores - scores[np.arange(len(y)), codes][:, None])
    mu[np.arange(len(y)), codes] = 0
    norm = fitted.model_.stage_weights(fitted.model_.stage).sum()
    loss = options.get("C", 1e5) / (9 * len(y)) * mu.sum()
    assert fitted.objective_ == pytest.approx(norm + loss, rel=1e-9)

    staged = list(fitted.staged_predict(X_test))
    assert len(staged) == fitted.n_iter_
    assert (staged[-1] == fitted.predict(X_test)).all()
    in_data = list(fitted.staged_predict(Dataset.from_arrays(X_test)))
    assert all((a == b).all() for a, b in zip(staged, in_data, strict=True))
    assert accuracy_score(y_test, staged[-1]) > accuracy_score(y_test, staged[0])

    fitted.save(tmp_path / "m")
    assert api.verify(tmp_path / "m") == []
    again = bigmc.load_model(tmp_path / "m")
    assert (again.decision_function(X_test) == fitted.decision_function(X_test)).all()
    assert again.get_params() == {**fitted.get_params(), "memory_limit": None}
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()


def test_what_is_certified_and_what_is_not(digits):
    X, _, y, _ = digits
    exact = MultiBoostClassifier(max_depth=1, C=100.0, tol=1e-4).fit(X, y)
    assert exact.certificate_.lower <= exact.certificate_.upper == exact.objective_
    assert exact.certificate_.gap <= 1e-4
    better = MultiBoostClassifier(max_depth=1, C=100.0, tol=1e-7).fit(X, y)
    assert exact.certificate_.lower <= better.objective_ <= exact.objective_
    trees = MultiBoostClassifier(max_depth=2, n_rounds=2, pool=2).fit(X, y)
    assert (trees.certificate_.lower, trees.certificate_.gap) == (-np.inf, np.inf)
    with pytest.warns(ConvergenceWarning, match=r"raise n_rounds \(now 1\) or tol"):
        MultiBoostClassifier(max_depth=1, n_rounds=1).fit(X, y)


def test_importances_add_up_to_the_norm_and_point_the_right_way():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5))
    y = np.where(X[:, 3] > 0.2, "up", "down")
    fitted = MultiBoostClassifier(max_depth=1, C=100.0).fit(X, y)
    importances = fitted.feature_importances_.toarray()
    weights = fitted.model_.stage_weights(fitted.model_.stage)
    constant = (fitted.model_.trees.node_feature < 0).all(axis=1)
    assert importances.sum() == pytest.approx(weights[~constant].sum())
    assert importances.sum(axis=0).argmax() == 3
    shown = bigmc.inspect(fitted.model_, top=1)["classes"]
    weight = {entry["label"]: entry["features"][0]["weight"] for entry in shown if entry["features"]}
    assert all((weight[label] > 0) == (label == "up") for label in weight)
    assert weight


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_missing_values_are_values():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 3)).round(1)
    y = rng.integers(0, 3, 300)
    X[y == 1, 0] = np.nan
    X[rng.random(300) < 0.3, 1] = np.nan
    X[:, 2] = np.where(rng.random(300) < 0.5, np.nan, 1.0)
    for options in ({"C": 1e3, "n_rounds": 5}, {"C": 1e3, "max_depth": 2, "n_rounds": 3, "pool": 4}):
        fitted = MultiBoostClassifier(**options).fit(X, y)
        assert ((fitted.predict(X) == 1) == np.isnan(X[:, 0])).all()
        np.testing.assert_allclose(fitted.decision_function(X), walk(fitted.model_, X), atol=1e-10)
    with pytest.raises(ValueError, match="infinity"):
        MultiBoostClassifier().fit(np.where(np.isnan(X), np.inf, X), y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_held_out_samples_choose_the_stage(digits):
    X, _, y, _ = digits
    fitted = MultiBoostClassifier(
        max_depth=1, validation_fraction=0.3, patience=3, n_rounds=50, tol=1e-9
    ).fit(X, y)
    errors = [entry["held_error"] for entry in fitted.history_]
    assert fitted.model_.stage == int(np.argmin(errors))
    assert len(errors) <= fitted.model_.stage + 4
    held = held_out(np.arange(len(y)), 0.3, 0)
    assert 0.25 < held.mean() < 0.35
    assert np.mean(fitted.predict(X[held]) != y[held]) == pytest.approx(min(errors))
    assert len(list(fitted.staged_predict(X[:3]))) == fitted.model_.n_stages - 1


def test_class_weights_move_the_errors(digits):
    X, X_test, y, y_test = digits
    plain = MultiBoostClassifier(max_depth=1, C=30.0, tol=1e-2).fit(X, y)
    heavy = MultiBoostClassifier(max_depth=1, C=30.0, tol=1e-2, class_weight={"h": 50.0}).fit(X, y)
    found = [(m.predict(X_test) == "h")[y_test == "h"].mean() for m in (plain, heavy)]
    assert found[1] >= found[0]
    assert (heavy.predict(X_test) == "h").sum() > (plain.predict(X_test) == "h").sum()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"C": 0}, "C is 0"),
        ({"C": "best"}, "C is 'best'"),
        ({"learning_rate": 0}, "learning_rate is 0; give a number above 0, at most 1"),
        ({"learning_rate": 1.5}, "learning_rate is 1.5"),
        ({"max_sweeps": 0}, "max_sweeps is 0"),
        ({"n_rounds": 0}, "n_rounds is 0"),
        ({"max_depth": 7}, "max_depth is 7; give a whole number from 1 to 6"),
        ({"max_bins": 256}, "max_bins is 256"),
        ({"family": "bush"}, "family is 'bush'"),
        ({"learners": "stolen"}, "learners is 'stolen'; use one of class, shared"),
        ({"family": "ray", "max_depth": 2}, "rays have depth 1"),
        ({"validation_fraction": 1.0}, "validation_fraction is 1.0"),
        ({"time_limit": -1.0}, "time_limit is -1.0"),
    ],
)
def test_parameters_are_refused_by_name(options, message):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(BigmcError, match=message):
        MultiBoostClassifier(**options).fit(X, y)


def test_holding_out_everything_is_refused():
    with pytest.raises(DataError, match="one class only"):
        MultiBoostClassifier(validation_fraction=0.99).fit([[0.0], [1], [2]], [0, 1, 2])


def test_a_damaged_model_is_refused(digits, tmp_path):
    X, _, y, _ = digits
    fitted = MultiBoostClassifier(max_depth=1, C=100.0, tol=0.3).fit(X, y)
    arrays = fitted.model_.to_arrays()
    record = {name: getattr(fitted.model_, name) for name in ("kind", "classes", "n_features")}
    BoostedModel.from_arrays(arrays, **record)
    for name, change in (
        ("node_feature", lambda a: a + 1000),
        ("node_cut", lambda a: a + 300),
        ("learner_class", lambda a: a + 10),
        ("leaf", lambda a: a * 3),
        ("members", lambda a: a - 1),
        ("weights", lambda a: -a - 1),
        ("edge_starts", lambda a: a[:-1]),
        ("stage", lambda a: a + 9),
    ):
        with pytest.raises(ModelError):
            BoostedModel.from_arrays({**arrays, name: change(arrays[name])}, **record)


def texts(path, n=3000):
    rng = np.random.default_rng(0)
    words = np.array([f"w{k}" for k in range(3000)])
    lines = ["text,label"]
    for _ in range(n):
        c = rng.integers(0, 4)
        common = words[(rng.random(8) ** 3 * 2000).astype(int)]
        lines.append(f"{' '.join([*common, *words[2000 + 250 * c + rng.integers(0, 250, 4)]])},class {c}")
    path.write_text("\n".join(lines))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Hashed text, and dense numbers, in datasets on disk."""
    here = tmp_path_factory.mktemp("boost")
    texts(here / "rows.csv")
    api.ingest(here / "rows.csv", here / "text.bigmc", text="text", label="label", hash_bits=14)
    X, y = load_digits(return_X_y=True)
    api.ingest(X, here / "dense.bigmc", label=y)
    return here


def command(monkeypatch, capsys, line):
    from bigmc import cli

    monkeypatch.setattr(sys, "argv", ["bigmc", *line.split()])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert exit_.value.code == 0
    return json.loads(capsys.readouterr().out)


def test_hashed_text_through_every_command(stored, tmp_path, monkeypatch, capsys):
    data, model = stored / "text.bigmc", tmp_path / "m"
    line = f"train boost {data} --to {model} --C 1e3 --tol 1e-3 --memory 100MB --json"
    trained = command(monkeypatch, capsys, line)
    assert trained["converged"]
    assert trained["certificate"]["gap"] <= 1e-3
    assert (load_model(model).trees.leaf == 0).any(axis=1).mean() > 0.9, "text is for rays"
    found = command(monkeypatch, capsys, f"evaluate {model} {data} --memory 100MB --json")
    assert found["accuracy"] > 0.95
    loaded = bigmc.load_model(model)
    assert found["accuracy"] == loaded.score(bigmc.open_dataset(data)["test"])
    shown = command(monkeypatch, capsys, f"inspect {model} --top 3 --json")
    for entry in shown["classes"]:
        c = int(entry["label"].split()[1])
        best = entry["features"][0]
        speaks_for = [n for n in best["names"] if n["sign"] * best["weight"] > 0]
        assert any(2000 + 250 * c <= int(n["name"].split()[0][1:]) < 2250 + 250 * c for n in speaks_for)
    rows = f"predict {model} {stored / 'rows.csv'} --to {tmp_path / 'a'} --scores --memory 100MB --json"
    command(monkeypatch, capsys, rows)
    command(
        monkeypatch, capsys, f"predict {model} {data} --to {tmp_path / 'b'} --scores --memory 100MB --json"
    )
    import pyarrow.parquet as pq

    raw, read = pq.read_table(tmp_path / "a"), pq.read_table(tmp_path / "b")
    read = read.sort_by("row_id")
    assert raw["predicted_label"].to_pylist() == read["predicted_label"].to_pylist()
    np.testing.assert_allclose(raw["score_class 1"].to_numpy(), read["score_class 1"].to_numpy(), atol=1e-12)


def test_the_model_does_not_depend_on_memory_or_workers(stored, tmp_path):
    options = {"C": 1e4, "n_rounds": 3, "learner": "boost", "dataset": stored / "dense.bigmc"}
    for name, limit, workers in (("a", "500MB", 2), ("b", "40MB", 1)):
        api.train(to=tmp_path / name, memory_limit=limit, engine=ThreadEngine(workers), **options)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.exhaustive(keep=2)
@pytest.mark.parametrize(
    ("data", "options", "saves"),
    [
        ("text.bigmc", {"C": 1e3}, (1, 3)),
        ("dense.bigmc", {"C": 1e4}, (1, 3)),
        ("dense.bigmc", {"max_depth": 2, "pool": 4}, (1, 3)),
        ("dense.bigmc", {"C": "auto"}, (6, 14)),  # in the second trial and a later one
    ],
    ids=["rays", "stumps", "trees", "trials"],
)
def test_a_killed_training_ends_with_the_same_bytes(stored, data, options, saves, tmp_path):
    def train(to):
        arguments = {"n_rounds": 4, "tol": 1e-9, "memory_limit": "100MB", "engine": ThreadEngine(1)}
        return api.train("boost", stored / data, to, **arguments, **options)

    def die_after(saves):
        save = loop.save_run

        def fatal(*arguments):
            nonlocal saves
            save(*arguments)
            saves -= 1
            if not saves:
                os.kill(os.getpid(), signal.SIGKILL)

        loop.save_run = fatal

    train(tmp_path / "whole")
    for lives in saves:
        to = tmp_path / f"killed {lives}"
        pid = os.fork()
        if pid == 0:
            die_after(lives)
            train(to)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status)
        assert (tmp_path / f"killed {lives}.wip" / "checkpoint.npz").exists()
        train(to)
        assert to.read_bytes() == (tmp_path / "whole").read_bytes()


def test_dense_data_grow_trees_and_sparse_data_take_rays_unless_said_otherwise():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)  # no sum of single cuts tells these apart
    default = MultiBoostClassifier(n_rounds=8).fit(X, y)
    assert default.model_.figures()["depth"] == 4
    assert default.score(X, y) > 0.95
    stumps = MultiBoostClassifier(n_rounds=8, max_depth=1).fit(X, y)
    assert stumps.model_.figures()["depth"] == 1
    assert MultiBoostClassifier(n_rounds=2, family="stump").fit(X, y).model_.figures()["depth"] == 1
    sparse = scipy.sparse.random_array((200, 400), density=0.02, rng=rng, format="csr")
    rays = MultiBoostClassifier(n_rounds=2).fit(sparse, y)
    assert rays.model_.figures()["depth"] == 1
    assert (rays.model_.trees.leaf == 0).any()


@pytest.mark.parametrize("max_depth", [1, 4])
def test_samples_held_out_make_probabilities(max_depth, tmp_path):
    rng = np.random.default_rng(1)
    y = rng.integers(3, size=1200)
    X = rng.normal(size=(1200, 4)) + 1.2 * np.eye(3, 4)[y]
    learner = MultiBoostClassifier(n_rounds=12, max_depth=max_depth, validation_fraction=0.25)
    fitted = learner.fit(X[:800], y[:800])
    held = held_out(np.arange(800), 0.25, 0)
    rows, codes = X[:800][held], y[:800][held]
    # No other factor of the scores has less log loss on the samples held out.
    scores = fitted.decision_function(rows)
    others = [log_loss(codes, softmax(factor * scores, axis=1)) for factor in np.geomspace(1e-3, 3, 40)]
    assert log_loss(codes, fitted.predict_proba(rows)) <= min(others) + 1e-6
    new = fitted.predict_proba(X[800:])
    np.testing.assert_allclose(new.sum(axis=1), 1)
    assert (fitted.classes_[new.argmax(axis=1)] == fitted.predict(X[800:])).all()
    assert log_loss(y[800:], new) < 0.85  # of three classes alike: 1.10
    # Of those it is sure of by p, a share of about p is right.
    sure = new.max(axis=1)
    assert abs(sure.mean() - (new.argmax(axis=1) == y[800:]).mean()) < 0.08
    fitted.save(tmp_path / "m")
    np.testing.assert_array_equal(bigmc.load_model(tmp_path / "m").predict_proba(X[800:]), new)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_auto_takes_the_c_that_errs_least_on_samples_held_out():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=2000)
    X = rng.normal(size=(2000, 5)) + 1.2 * np.eye(3, 5)[y]  # classes overlap: little C is better
    found = MultiBoostClassifier(max_depth=1, C="auto", n_rounds=12).fit(X, y)
    errors = []
    for C in GRID:
        trial = MultiBoostClassifier(max_depth=1, C=C, n_rounds=10, validation_fraction=0.2).fit(X, y)
        errors.append(trial.history_[-1]["held_error"])
    assert errors[GRID.index(found.C_)] == min(errors)
    assert found.C_ < 1e5
    again = MultiBoostClassifier(max_depth=1, C=found.C_, n_rounds=12).fit(X, y)
    assert again.C_ == found.C_
    assert again.objective_ == found.objective_
    np.testing.assert_array_equal(again.decision_function(X), found.decision_function(X))


def test_auto_without_samples_held_out_is_refused():
    X, y = np.arange(4.0)[:, np.newaxis], np.array([0, 1, 0, 1])
    with pytest.raises(DataError, match=r"no sample was held out|one class only"):
        MultiBoostClassifier(C="auto", validation_fraction=1e-9).fit(X, y)


def test_trees_are_added_with_shrinkage():
    X, y = load_digits(return_X_y=True)
    model = MultiBoostClassifier(max_depth=2, n_rounds=4, pool=5).fit(X, y)
    same = MultiBoostClassifier(
        max_depth=2, n_rounds=4, pool=5, max_sweeps=1, inner_rounds=5, learning_rate=0.3
    ).fit(X, y)
    np.testing.assert_array_equal(model.decision_function(X), same.decision_function(X))
    objectives = [entry["objective"] for entry in model.history_]
    assert all(np.diff(objectives) < 0)


MEASURE = """
import sys
import bigmc.api, bigmc.ingestion, bigmc.estimators, bigmc.cli
import bigmc.inference.evaluation.evaluate, bigmc.inference.predict
from bigmc import budget
from bigmc.engine import ThreadEngine
from bigmc.kernels.compile_server import compile_elsewhere
compile_elsewhere()  # as commands do
bare = budget.current_memory()
budget.reset_peak()
command, memory, *arguments = sys.argv[1:]
options = {"n_rounds": 2} if command == "train" else {"split": "train"}
getattr(bigmc.api, command)(*arguments, **options, memory_limit=memory, engine=ThreadEngine(2))
print(budget.peak_memory() - bare)
"""


@pytest.mark.exhaustive
@pytest.mark.slow
def test_training_and_evaluation_stay_within_the_limit(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 6, 30_000)
    X = rng.normal(size=(30_000, 300)).astype(np.float32)
    X += np.float32(0.3) * (y[:, None] == np.arange(300) % 6)
    api.ingest(X, tmp_path / "d", label=y, split={"train": 1.0}, memory_limit="500MB")
    for line in (["train", "48MB", "boost", "d", "m"], ["evaluate", "48MB", "m", "d"]):
        assert said_number(MEASURE, *line, folder=tmp_path) <= 48_000_000
