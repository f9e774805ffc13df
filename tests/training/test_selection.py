"""The regularisation path: every point is the optimum of its penalty, and nothing is done twice."""

import json
import os
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from killing import child
from sklearn.datasets import load_digits
from sparse_runs import largest_alpha

import bigmc
from bigmc import SparseClassifier, api
from bigmc.engine import ThreadEngine
from bigmc.errors import BigmcError, ModelError
from bigmc.model import load_model
from bigmc.store.files import disk
from bigmc.training.gradient_norms import save_norms, with_norms
from bigmc.training.options import HeldOut
from bigmc.training.selection import HELD_OUT_SEED

TOL = 1e-4


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    data = load_digits()
    path = tmp_path_factory.mktemp("path") / "digits.bigmc"
    bigmc.ingest(data.data / 16, path, label=data.target)
    return path


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """Rows enough for paths that are begun again and again."""
    X, y = load_digits(n_class=3, return_X_y=True)
    return bigmc.ingest(X[:200] / 16, tmp_path_factory.mktemp("few") / "digits.bigmc", label=y[:200])


@pytest.fixture(scope="module")
def made(dataset):
    to = dataset.parent / "path"
    return to, api.sparse_path(dataset, to, n_alphas=10, alpha_ratio=1e-2, validation="test", tol=TOL)


def untimed(result: dict) -> dict:
    """Return the result of a path as a run that trains nothing gives it."""
    table = [{**row, "seconds": None} for row in result["table"]]
    return {**result, "table": table, "best": {**result["best"], "seconds": None}}


def test_largest_alpha_is_where_the_weights_vanish(dataset):
    train = bigmc.open_dataset(dataset)["train"]
    top = largest_alpha(train, memory_limit=10**9)
    assert len(SparseClassifier(alpha=top * 1.0001, tol=1e-6).fit(train).model_.features) == 0
    assert len(SparseClassifier(alpha=top * 0.99, tol=1e-6).fit(train).model_.features) > 0


def test_every_point_is_the_optimum_of_its_penalty(dataset, made):
    _, result = made
    table = result["table"]
    assert len(table) >= 10
    alphas = [row["alpha"] for row in table]
    assert alphas[9] == pytest.approx(alphas[0] / 100)
    assert np.allclose(np.diff(np.log(alphas)), np.log(alphas[1] / alphas[0]))
    train = bigmc.open_dataset(dataset)["train"]
    for row in (table[3], table[9]):
        alone = SparseClassifier(
            alpha=row["alpha"], loss="multitask_squared_hinge", ridge=1e-5, tol=1e-7, max_passes=1000
        ).fit(train)
        assert alone.certificate_.lower <= row["objective"] * (1 + 1e-12)
        assert row["objective"] <= alone.objective_ * (1 + 1.1 * TOL)
        assert row["gap"] <= TOL


def test_the_best_point_is_chosen_and_saved(dataset, made):
    to, result = made
    best = max(row["accuracy"] for row in result["table"])
    assert result["best"]["accuracy"] == best
    assert api.evaluate(result["best_model"], dataset)["accuracy"] == best
    assert (to / "best.model").read_bytes() == (to / result["best"]["model"]).read_bytes()
    table = json.loads((to / "path.json").read_text())["table"]
    assert [{**row, "seconds": None} for row in table] == untimed(result)["table"]


def test_a_path_may_start_from_a_model(dataset, made, tmp_path):
    """The first training has little to do where the start is its optimum, and the path is the same one."""
    to, result = made
    first = result["table"][4]
    options = {"alphas": [first["alpha"], first["alpha"] / 2], "validation": "test", "tol": TOL}
    cold = api.sparse_path(dataset, tmp_path / "cold", **options)
    warm = api.sparse_path(dataset, tmp_path / "warm", warm_start=to / first["model"], **options)
    assert warm["table"][0]["n_passes"] < cold["table"][0]["n_passes"]
    for one, other in zip(warm["table"], cold["table"], strict=True):
        assert one["objective"] == pytest.approx(other["objective"], rel=2 * TOL)
    again = api.sparse_path(dataset, tmp_path / "warm", warm_start=to / first["model"], **options)
    assert again == untimed(warm)
    with pytest.raises(ModelError, match="another --to"):
        api.sparse_path(dataset, tmp_path / "warm", warm_start=to / result["table"][6]["model"], **options)


def test_a_path_that_is_there_is_not_made_again(dataset, made):
    to, result = made
    before = {file.name: file.stat().st_mtime_ns for file in to.iterdir()}
    again = api.sparse_path(dataset, to, n_alphas=10, alpha_ratio=1e-2, validation="test", tol=TOL)
    assert again == untimed(result)
    assert {file.name: file.stat().st_mtime_ns for file in to.iterdir()} == before
    with pytest.raises(ModelError, match="other data or parameters"):
        api.sparse_path(dataset, to, n_alphas=10, alpha_ratio=1e-2, validation="test", tol=2 * TOL)


PATH = {"alphas": [0.5, 0.1, 0.02], "tol": TOL, "memory_limit": "64MB"}


def files_of(folder) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_path_killed_anywhere_ends_with_the_same_bytes(few, tmp_path):
    api.sparse_path(few, tmp_path / "whole", engine=ThreadEngine(1), **PATH)
    expected = files_of(tmp_path / "whole")

    def make(name):
        return lambda: api.sparse_path(few, tmp_path / name, engine=ThreadEngine(1), **PATH)

    watch = [(disk, "rename"), (disk, "unlink")]
    _, counts = child(make("counted"), watch)
    assert files_of(tmp_path / "counted") == expected
    points = [("rename", k, when) for k in range(1, counts["rename"] + 1, 4) for when in ("before", "after")]
    assert len(points) >= 8
    for number, point in enumerate(points):
        status, _ = child(make(str(number)), watch, point)
        assert os.WIFSIGNALED(status), point
        make(str(number))()
        assert files_of(tmp_path / str(number)) == expected, point


class Stop(Exception):
    """What interrupts a path."""


def test_norms_that_are_gone_or_of_another_model_change_no_later_model(dataset, tmp_path):
    options = {**PATH, "engine": ThreadEngine(1)}
    api.sparse_path(dataset, tmp_path / "whole", **options)
    expected = files_of(tmp_path / "whole")
    to = tmp_path / "stopped"
    norms, figures = to / "000.norms.npy", to / "000.json"

    def stop(message):
        if figures.exists():
            raise Stop

    with pytest.raises(Stop):
        api.sparse_path(dataset, to, progress=stop, **options)
    for content in (expected["001.norms.npy"], None):
        norms.unlink()
        if content is not None:
            norms.write_bytes(content)
        with pytest.raises(ModelError, match=r"000.norms.npy has changed.*, or is gone; delete 000.model"):
            api.sparse_path(dataset, to, **options)
    norms.write_bytes(expected["001.norms.npy"])
    figures.unlink()  # as if killed before they were written
    with pytest.raises(ModelError, match="the norms of another model; delete it"):
        api.sparse_path(dataset, to, **options)
    norms.unlink()
    api.sparse_path(dataset, to, **options)
    assert files_of(to) == expected


def test_norms_belong_to_a_model_whose_zeros_have_signs(dataset, tmp_path):
    path = tmp_path / "sparse.model"
    api.train("sparse", dataset, path, alpha=1e-3)
    trained = load_model(path)
    coef = np.zeros(trained.coef.shape)
    coef[:, 0], coef[:, 1:] = 1.0, -0.0  # stored as non-zeros, so the signs of the zeros are lost
    model = replace(trained, coef=coef, gradient_norms=np.ones(trained.n_features, np.float32))
    save_norms(model, path)
    model.save(path)
    assert not np.signbit(load_model(path).coef).any()
    assert (with_norms(load_model(path), path).gradient_norms == 1).all()


def test_a_path_spares_the_files_of_others(dataset, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    api.sparse_path(dataset, tmp_path, alphas=[0.5], tol=0.1)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    for name in ("best.model", "001.model", "path.json"):
        folder = tmp_path / f"with {name}"
        folder.mkdir()
        (folder / name).write_text("mine")
        with pytest.raises(ModelError, match=f"files of the same names: {name}"):
            api.sparse_path(dataset, folder, alphas=[0.5, 0.4], tol=0.1)
        assert (folder / name).read_text() == "mine"
        result = api.sparse_path(dataset, folder, alphas=[0.5, 0.4], tol=0.1, overwrite=True)
        assert len(result["table"]) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"alphas": [0.1, -1.0]},
        {"n_alphas": 0},
        {"alpha_ratio": 2.0},
        {"alpha": 0.1},
        {"validation": "nothing"},
    ],
)
def test_wrong_options_are_refused(dataset, tmp_path, wrong):
    with pytest.raises(BigmcError):
        api.sparse_path(dataset, tmp_path / "p", **wrong)


def test_a_warm_start_reaches_the_same_optimum_in_fewer_passes(dataset, tmp_path):
    cold = api.train("sparse", dataset, tmp_path / "cold.model", alpha=0.02, tol=TOL)
    api.train("sparse", dataset, tmp_path / "near.model", alpha=0.025, tol=TOL)
    options = {"alpha": 0.02, "tol": TOL, "warm_start": tmp_path / "near.model"}
    warm = api.train("sparse", dataset, tmp_path / "warm.model", **options)
    assert warm["converged"]
    assert warm["objective"] == pytest.approx(cold["objective"], rel=2 * TOL)
    assert warm["n_passes"] < cold["n_passes"]


def test_a_warm_start_needs_the_same_features(dataset, tmp_path):
    data = load_digits()
    bigmc.ingest(data.data[:, :9] / 16, tmp_path / "other.bigmc", label=data.target)
    api.train("sparse", tmp_path / "other.bigmc", tmp_path / "other.model", alpha=0.1)
    with pytest.raises(ModelError, match="different features"):
        api.train("sparse", dataset, tmp_path / "m.model", warm_start=tmp_path / "other.model")


@pytest.fixture
def evaluated(dataset, made, tmp_path):
    """Evaluations of three points of the path, with what each said."""
    files = [tmp_path / f"{k}.json" for k in (2, 5, 9)]
    said = [api.evaluate(made[0] / f"00{file.stem}.model", dataset, to=file) for file in files]
    return files, said


@pytest.mark.parametrize("by", ["accuracy", "macro_f1"])
def test_the_best_of_evaluated_models_is_published(by, evaluated, made, tmp_path):
    files, said = evaluated
    to = tmp_path / "best.model"
    to.write_bytes(b"a file that was not published")
    with pytest.raises(BigmcError, match="not the result of the same command"):
        api.publish(files, to, by=by)
    result = api.publish(files, to, by=by, overwrite=True)
    best = max(range(3), key=lambda k: said[k][by])
    assert result["best"][by] == said[best][by]
    assert to.read_bytes() == (made[0] / f"00{files[best].stem}.model").read_bytes()
    before = to.stat().st_mtime_ns
    assert api.publish(files, to, by=by) == result
    assert to.stat().st_mtime_ns == before


def test_a_published_model_is_replaced_by_a_better_one(evaluated, tmp_path):
    files, _ = evaluated
    to = tmp_path / "best.model"
    api.publish(files[:1], to)
    first = to.read_bytes()
    status, _ = child(lambda: api.publish(files[1:], to), [(disk, "rename")], ("rename", 2, "before"))
    assert os.WIFSIGNALED(status)
    assert to.read_bytes() == first
    api.publish(files[2:], to)
    assert to.read_bytes() != first
    to.write_bytes(first + b"changed by hand")
    with pytest.raises(BigmcError, match="not the result of the same command"):
        api.publish(files[:1], to)
    with pytest.raises(BigmcError, match="is an input"):
        api.publish(files[:1], json.loads(files[0].read_text())["model"], overwrite=True)


def test_of_equals_the_smaller_model_is_published(evaluated, tmp_path):
    files, _ = evaluated
    for file in files:
        file.write_text(json.dumps(json.loads(file.read_text()) | {"accuracy": 0.5}))
    table = api.publish(files, tmp_path / "best.model")
    assert table["best"]["n_nonzero_features"] == min(row["n_nonzero_features"] for row in table["table"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"split": "valid"}, "evaluated on different data"),
        ({"dataset": "another"}, "evaluated on different data"),
        ({"model_sha256": "another", "accuracy": 1.0}, "not the model that was evaluated"),
        ({"model": None}, "0.json is not an evaluation"),
        (None, "there is no evaluation"),
    ],
)
def test_nothing_is_published_from_bad_evaluations(change, reason, evaluated, tmp_path):
    files, _ = evaluated
    bad = tmp_path / "0.json"
    if change is not None:
        bad.write_text(json.dumps(json.loads(files[0].read_text()) | change))
    with pytest.raises(BigmcError, match=reason):
        api.publish([*files, bad], tmp_path / "best.model")
    assert not (tmp_path / "best.model").exists()


def test_rows_of_training_choose_where_no_split_does(dataset, tmp_path):
    """The best of a path that never sees its held-out rows is found on these rows alone."""
    result = api.sparse_path(dataset, tmp_path / "p", n_alphas=4, alpha_ratio=0.1, ridge=1e-3, tol=0.1)
    share = load_model(tmp_path / "p" / "000.model").params["held_out"]
    assert 0 < share <= 0.2
    rows, _ = HeldOut(share, HELD_OUT_SEED).rows(bigmc.open_dataset(dataset)["train"], ThreadEngine(1))
    for row in result["table"]:
        assert (
            api.evaluate(load_model(tmp_path / "p" / row["model"]), rows, split="all")["accuracy"]
            == (row["accuracy"])
        )


def test_a_path_goes_on_until_validation_has_turned(dataset, tmp_path):
    result = api.sparse_path(dataset, tmp_path / "p", n_alphas=3, alpha_ratio=0.5, ridge=1e-3, tol=0.1)
    alphas = [row["alpha"] for row in result["table"]]
    assert len(alphas) > 3
    np.testing.assert_allclose(np.diff(np.log(alphas)), np.log(alphas[1] / alphas[0]))
    assert not result["at_edge"] or len(alphas) == 23
    assert result["best"]["accuracy"] == max(row["accuracy"] for row in result["table"])


def test_the_largest_penalty_is_that_of_the_weighted_rows(tmp_path):
    """Weights are repetitions, and balanced classes are weights of the rows."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 6 // 5  # one row in six
    x = rng.normal(size=(120, 2)) + y[:, np.newaxis]
    counts = np.where(y == 1, 9, rng.integers(1, 3, 120))
    frame = {"a": x[:, 0], "b": x[:, 1], "y": y, "w": counts, "even": 1 / np.bincount(y)[y]}
    rows = pa.table(frame)
    repeated = rows.take(np.repeat(np.arange(120), counts))
    common = {"dense": ["a", "b"], "label": "y", "split": {"train": 1.0}}

    def largest(name, table, weight=None, **options):
        bigmc.ingest(table, tmp_path / name, **common, **({} if weight is None else {"weight": weight}))
        to = tmp_path / f"{name} path"
        return api.sparse_path(tmp_path / name, to, n_alphas=1, **options)["table"][0]["alpha"]

    assert largest("weighted", rows, "w") == pytest.approx(largest("repeated", repeated), rel=1e-5)
    balanced = largest("balanced", rows, class_weight="balanced")
    assert balanced == pytest.approx(largest("even", rows, "even"), rel=1e-5)
    assert balanced != pytest.approx(largest("plain", rows), rel=0.1)
