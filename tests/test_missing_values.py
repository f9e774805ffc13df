"""Missing values from files and arrays, kept on disk, learned from by boosting, refused by the others."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import bigmc
from bigmc import api
from bigmc.cli import app
from bigmc.errors import DataError, ModelError
from bigmc.solvers.boosting import GRID

ALL = {"split": {"train": 1.0}, "memory_limit": "200MB"}
NAMES = ("age", "height", "income")


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3)).round(2)
    y = rng.integers(3, size=400)
    X[(y == 1) & (rng.random(400) < 0.8), 0] = np.nan  # that it is missing says most
    X[rng.random(400) < 0.3, 1] = np.nan
    return X, y


@pytest.fixture(scope="module")
def table(problem):
    """Null in one column, NaN in the other."""
    X, y = problem
    age = pa.array(X[:, 0], from_pandas=True)
    assert age.null_count
    return pa.table({"age": age, "height": X[:, 1], "income": X[:, 2], "label": y})


def boost(**options):
    return bigmc.MultiBoostClassifier(C=100, n_rounds=5, memory_limit="200MB", **options)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl", "array"])
@pytest.mark.parametrize("max_depth", [1, 2])
def test_from_disk_as_from_memory(problem, table, tmp_path, kind, max_depth):
    X, y = problem
    source, options = tmp_path / f"t.{kind}", {"dense": NAMES, "label": "label"}
    if kind == "parquet":
        pq.write_table(table, source)
    elif kind == "csv":
        rows = [
            ",".join("" if v != v else repr(v) for v in row) + f",{c}"
            for row, c in zip(X.tolist(), y, strict=True)
        ]
        source.write_text("\n".join([",".join([*NAMES, "label"]), *rows]) + "\n")
    elif kind == "jsonl":
        rows = [
            dict(zip([*NAMES, "label"], [*row.tolist(), int(c)], strict=True))
            for row, c in zip(X, y, strict=True)
        ]
        rows = [{k: v for k, v in row.items() if v == v} for row in rows]  # absent keys
        rows[0] = {name: rows[0].get(name) for name in [*NAMES, "label"]}
        source.write_text("\n".join(map(json.dumps, rows)) + "\n")
    else:
        source, options = X, {"label": y}
    dataset = bigmc.ingest(source, tmp_path / "d.bigmc", **options, missing="keep", **ALL)
    stored = boost(max_depth=max_depth).fit(dataset["train"])
    memory = boost(max_depth=max_depth).fit(X, y)
    assert stored.objective_ == memory.objective_
    scores = memory.decision_function(X)
    np.testing.assert_array_equal(stored.decision_function(dataset), scores)
    np.testing.assert_array_equal(stored.decision_function(X), scores)
    assert (stored.predict(X)[np.isnan(X[:, 0])] == 1).all()
    stored.save(tmp_path / "m.model")
    api.predict(tmp_path / "m.model", source, tmp_path / "p.parquet")
    found = pq.read_table(tmp_path / "p.parquet").sort_by("row_id").column("predicted_label").to_numpy()
    np.testing.assert_array_equal(found.astype(int), memory.predict(X))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_model_of_arrays_takes_missing_values_of_arrays(problem, tmp_path):
    X, y = problem
    model = boost().fit(X, y)
    model.save(tmp_path / "m.model")
    assert api.predict(tmp_path / "m.model", X, tmp_path / "p.parquet")["n_quarantined"] == 0


def test_they_are_bad_rows_unless_they_are_kept(problem, table, tmp_path):
    X, _ = problem
    first = int(np.flatnonzero(np.isnan(X).any(axis=1))[0])
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DataError, match=f"row {first}: column '(age|height)' is (nan|not a number)"):
        bigmc.ingest(tmp_path / "t.parquet", tmp_path / "d", dense=NAMES, label="label", **ALL)
    found = bigmc.ingest(
        tmp_path / "t.parquet", tmp_path / "d", dense=NAMES, label="label", on_bad_row="quarantine", **ALL
    )
    assert found.n_samples == np.isfinite(X).all(axis=1).sum()


@pytest.mark.parametrize("bad", [float("inf"), -float("inf")])
def test_infinite_values_stay_bad(problem, tmp_path, bad):
    X, y = problem[0].copy(), problem[1]
    X[7, 2] = bad
    with pytest.raises(DataError, match=f"row 7: feature 2 is {bad}"):
        bigmc.ingest(X, tmp_path / "d", label=y, missing="keep", **ALL)


def test_what_is_no_number_stays_bad(tmp_path):
    (tmp_path / "t.csv").write_text("x,label\n1,a\n,b\n?,a\n")
    with pytest.raises(DataError, match=r"t\.csv:4: column 'x' is not a number"):
        bigmc.ingest(tmp_path / "t.csv", tmp_path / "d", dense="x", label="label", missing="keep", **ALL)


@pytest.mark.parametrize("learner", [bigmc.SparseClassifier, bigmc.MinimaxRiskClassifier])
def test_other_learners_refuse_them_and_name_the_column(problem, table, tmp_path, learner):
    X, y = problem
    named = bigmc.ingest(
        table, tmp_path / "a", dense=("income", "height", "age"), label="label", missing="keep", **ALL
    )
    with pytest.raises(DataError, match=r"column 'height' has missing values.*train boost"):
        learner().fit(named["train"])
    with pytest.raises(DataError, match=r"column 'height' has missing values.*train boost"):
        bigmc.sparse_path(tmp_path / "a", tmp_path / "p")
    assert not (tmp_path / "p").exists()
    with pytest.raises(DataError, match="feature 0 has missing values"):
        learner().fit(bigmc.ingest(X, tmp_path / "b", label=y, missing="keep", **ALL))
    whole = bigmc.ingest(X[:, 2:], tmp_path / "c", label=y, missing="keep", **ALL)
    with pytest.raises(DataError, match="the dataset may have missing values"):
        learner().fit(whole)
    with pytest.raises(ModelError, match="missing is"):  # a model that knows none
        learner(tol=0.5).fit(np.nan_to_num(X), y).predict(named)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"missing": "drop"}, "missing is 'drop'; choose refuse, keep or fill"),
        ({"missing": "keep", "standardize": True}, "neither standardised nor"),
        ({"missing": "keep", "weighting": "l2"}, "l2 weighting of rows with missing values"),
    ],
)
def test_options_that_do_not_go_together(problem, tmp_path, options, message):
    with pytest.raises(DataError, match=message):
        bigmc.ingest(problem[0], tmp_path / "d", label=problem[1], **options)


def test_hashed_columns_have_none(tmp_path):
    (tmp_path / "t.csv").write_text("x,label\n1,a\n,b\n")
    with pytest.raises(DataError, match="only dense columns"):
        bigmc.ingest(tmp_path / "t.csv", tmp_path / "d", numeric="x", label="label", missing="keep")


def test_the_commands(problem, table, tmp_path):
    pq.write_table(table, tmp_path / "t.parquet")
    dense = [option for name in NAMES for option in ("--dense", name)]

    def run(*arguments):
        return CliRunner().invoke(app, [str(a) for a in arguments])

    ingest = ["ingest", tmp_path / "t.parquet", "--to", tmp_path / "d", *dense, "--label", "label"]
    assert run(*ingest, "--missing", "keep").exit_code == 0
    assert run("verify", tmp_path / "d").exit_code == 0
    refused = run("train", "sparse", tmp_path / "d", "--to", tmp_path / "s")
    assert refused.exit_code == 1
    train = ["train", "boost", tmp_path / "d", "--to", tmp_path / "m", "--C", "100", "--rounds", "5"]
    assert run(*train).exit_code == 0
    auto = ["train", "boost", tmp_path / "d", "--to", tmp_path / "a", "--C", "auto", "--rounds", "3"]
    assert run(*auto).exit_code == 0
    assert json.loads(run("info", tmp_path / "a", "--json").stdout)["C"] in GRID
    assert run(*auto[:-4], "--C", "much").exit_code == 2
    measured = run("evaluate", tmp_path / "m", tmp_path / "d", "--json")
    assert json.loads(measured.stdout)["accuracy"] > 0.4
