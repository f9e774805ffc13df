"""`bigmc fit`: the search against an exhaustive one, honest figures, resuming, and all kinds of data."""

import gzip
import time
import zlib
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import dump_svmlight_file, load_digits, load_svmlight_file

import bigmc
from bigmc import api
from bigmc.engine import ThreadEngine
from bigmc.errors import DataError, ModelError
from bigmc.store.dataset import Dataset
from bigmc.store.files.work_file import read_work_file
from bigmc.training.fit import models
from bigmc.training.search.folds import cross_validated
from bigmc.training.search.limits import Limits
from bigmc.training.search.search import Search
from bigmc.training.search.trials import HINGE, Candidate
from bigmc.training.search.validation import Validation

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_rounds_of_boosting")]

RNG = np.random.default_rng(5)
OPTIONS = {"text": "text", "label": "label", "ngrams": (1, 1), "memory_limit": "1GB"}
"""Without the trials of word lengths, which `test_pilot` has."""
TOPICS = {"fish": "river sea boat scales net", "bird": "sky wing nest feather egg", "tree": "leaf root bark"}


def documents(n=600):
    every = " ".join(TOPICS.values()).split()
    labels = RNG.choice(list(TOPICS), n)
    texts = [" ".join([RNG.choice(TOPICS[x].split()), *RNG.choice(every, 4)]) for x in labels]
    return pd.DataFrame({"text": texts, "label": labels})


@pytest.fixture(autouse=True)
def numbers_of_its_own(request, monkeypatch):
    """Let a test draw the same numbers whichever tests run before it."""
    seed = zlib.crc32(request.node.name.encode())
    monkeypatch.setattr(f"{__name__}.RNG", np.random.default_rng(seed))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    table = documents()
    table.to_csv(folder / "docs.csv", index=False)
    result = bigmc.fit(folder / "docs.csv", folder / "m", **OPTIONS)
    return result, folder, table


def test_the_model_is_good_and_says_how_good(fitted):
    result, folder, _ = fitted
    test = result["test"]
    assert test["accuracy"] > 0.5
    assert test["interval"][0] < test["accuracy"] <= test["interval"][1]
    assert result["baselines"]["largest_class"] < 0.5 < result["baselines"]["plain_ridge"]
    assert test["n_samples"] == bigmc.open_dataset(folder / "m.dataset").splits["test"]
    fresh = documents()
    model = bigmc.load_model(folder / "m")
    assert np.mean(model.predict(fresh["text"]) == fresh["label"]) == pytest.approx(
        test["accuracy"], abs=0.12
    )
    chances = model.predict_proba(fresh["text"])
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert result["certificate"]["lower"] <= result["certificate"]["upper"]


def test_the_chosen_settings_are_the_best_trial(fitted):
    result, _, _ = fitted
    chosen = [t for t in result["trials"] if t["settings"] == result["settings"]]
    assert len(chosen) == 1
    se = np.sqrt(0.25 / result["n_held_out"])
    assert chosen[0]["quality"] >= max(t["quality"] for t in result["trials"]) - se
    assert len({t["settings"] for t in result["trials"]}) == len(result["trials"]) > 5


def test_figures_of_rows_of_the_last_training_are_marked(fitted, tmp_path):
    """Its test rows are honest for the model that `fit` measured, not for the one of all rows."""
    _, folder, table = fitted
    model, data = folder / "m", folder / "m.dataset"
    assert all(
        bigmc.evaluate(model, data, split=split)["trained_on_these_rows"] for split in ("train", "test")
    )
    assert "trained_on_these_rows" not in bigmc.evaluate(model, table)
    bigmc.report(model, tmp_path / "r.html", dataset=data)
    assert "the samples the model was trained on" in (tmp_path / "r.html").read_text()
    api.export(model, tmp_path / "card.md", dataset=data)
    assert "The model was trained on these rows" in (tmp_path / "card.md").read_text()
    bigmc.train("sparse", data, tmp_path / "m", tol=1e-1)
    assert "trained_on_these_rows" not in bigmc.evaluate(tmp_path / "m", data)
    assert bigmc.evaluate(tmp_path / "m", data, split="train")["trained_on_these_rows"]


def test_words_are_kept_and_the_dataset_can_be_evaluated(fitted):
    _, folder, _ = fitted
    model = bigmc.load_model(folder / "m")
    words = {w for entry in model.explain("river wing leaf").classes for w, _ in entry.words}
    assert words
    assert bigmc.evaluate(folder / "m", folder / "m.dataset", split="test")["n_samples"] > 0


def test_many_rows_are_calibrated_on_those_of_the_test(tmp_path):
    """The final model takes the calibration of the measured one on the test rows."""
    documents(3_600).to_csv(tmp_path / "docs.csv", index=False)
    result = bigmc.fit(tmp_path / "docs.csv", tmp_path / "m", text="text", label="label", ngrams=(1, 1))
    assert result["n_held_out"] < result["n_search_rows"]
    model = bigmc.load_model(tmp_path / "m").model_
    assert model.calibration is not None
    assert all(model.calibration.to_dict() != trial["calibration"] for trial in model.params["search"])


def test_few_rows_are_calibrated_on_all_of_the_search(fitted):
    """Each is held out in its turn, and they are more than those of the test."""
    result, folder, _ = fitted
    assert result["n_held_out"] == result["n_search_rows"]
    model = bigmc.load_model(folder / "m").model_
    assert model.calibration is not None
    assert model.calibration.to_dict() in [trial["calibration"] for trial in model.params["search"]]
    fresh = documents()
    chances = bigmc.load_model(folder / "m").predict_proba(fresh["text"])
    classes = bigmc.load_model(folder / "m").classes_.tolist()
    codes = np.array([classes.index(label) for label in fresh["label"]])
    own = chances[np.arange(len(codes)), codes]
    right = chances.argmax(axis=1) == codes
    assert abs(chances.max(axis=1).mean() - right.mean()) < 0.08
    assert -np.log(own).mean() < np.log(3)


def test_a_finished_fit_is_not_done_again(fitted):
    result, folder, _ = fitted
    before = (folder / "m").read_bytes()
    again = bigmc.fit(folder / "docs.csv", folder / "m", **OPTIONS)
    assert again["trials"] == result["trials"]
    assert (folder / "m").read_bytes() == before


def test_what_a_fit_left_that_was_killed_as_it_cleared_its_folder_goes(fitted):
    _, folder, _ = fitted
    (folder / "m.fit" / "plain.model").write_bytes(b"a model")
    (folder / "m.fit" / "plain.wip").mkdir()
    (folder / "m.fit" / "plain.wip" / "checkpoint.npz").write_bytes(b"a checkpoint")
    bigmc.fit(folder / "docs.csv", folder / "m", **OPTIONS)
    assert not list((folder / "m.fit").glob("plain.*"))


def test_rows_that_changed_are_not_fitted_as_those_of_before(tmp_path):
    """The dataset beside the model is of the old file: it may not be used without a word."""
    options = {"text": "text", "label": "label", "memory_limit": "300MB", "time_limit": 0.0}
    documents(120).to_csv(tmp_path / "docs.csv", index=False)
    bigmc.fit(tmp_path / "docs.csv", tmp_path / "m", **options)
    leftover = tmp_path / "m.dataset" / "wip" / "parts"
    leftover.mkdir(parents=True)
    bigmc.fit(tmp_path / "docs.csv", tmp_path / "m", **options)
    assert not leftover.parent.exists()
    documents(121).to_csv(tmp_path / "docs.csv", index=False)
    with pytest.raises(DataError, match=r"m\.dataset was made with other parameters"):
        bigmc.fit(tmp_path / "docs.csv", tmp_path / "m", **options)


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize("lost", ["all trainings", "some trials"])
def test_an_interrupted_fit_ends_with_the_same_bytes(fitted, lost, tmp_path):
    _, folder, _ = fitted
    for name in ("docs.csv", "m.dataset"):
        (tmp_path / name).symlink_to(folder / name)
    work = tmp_path / "m.fit"
    work.mkdir()
    kept = sorted((folder / "m.fit").glob("trial-*.json"))
    for file in kept if lost == "all trainings" else kept[:-3]:
        (work / file.name).write_bytes(file.read_bytes())
    bigmc.fit(tmp_path / "docs.csv", tmp_path / "m", **OPTIONS)
    assert (tmp_path / "m").read_bytes() == (folder / "m").read_bytes()


def test_another_dataset_is_refused(fitted, tmp_path):
    _, folder, table = fitted
    data = bigmc.ingest(table[:300], tmp_path / "d", text="text", label="label")
    with pytest.raises(ModelError, match="other data"):
        bigmc.fit(data, folder / "m", memory_limit="1GB")


def test_the_search_finds_what_trying_everything_finds(fitted):
    _, folder, _ = fitted
    data = bigmc.open_dataset(folder / "m.dataset")["train"]
    search = Search(data, ThreadEngine(1), Limits(1 << 30))
    found = search.run()
    every = [  # those of the search are not made again
        search.trial_of(Candidate(weighting, loss, ridge))
        for weighting in ("tfidf", "binary tfidf")
        for loss in ("multitask_squared_hinge", "log_loss")
        for ridge in (0.1, 1.0, 10.0)
    ]
    assert found.best.quality >= max(t.quality for t in every) - 0.03


@pytest.mark.parametrize(("first", "expected"), [(0.79, "binary tfidf"), (0.7, "l2")])
def test_a_weighting_that_is_hardly_behind_is_tried_again_at_the_best_ridge(
    fitted, first, expected, monkeypatch
):
    """At the first ridge `first` of the rows are right with it, at smaller ones more than with l2."""
    _, folder, _ = fitted
    search = Search(bigmc.open_dataset(folder / "m.dataset")["train"], ThreadEngine(1), Limits(1 << 30))
    known = search.validation.attempt(search.first)
    at_first = {"tfidf": 0.6, "binary tfidf": first, "l2": 0.8}

    def attempt(candidate, rival=None):
        gain = {"tfidf": 0.0, "binary tfidf": 0.15, "l2": 0.05}[candidate.weighting]
        quality = at_first[candidate.weighting] + gain * (candidate.ridge < 0.9)
        quality -= 0.3 * (candidate.loss != HINGE or candidate.alpha > 0)
        return replace(known, candidate=candidate, quality=quality, log_loss=1.0 - quality)

    monkeypatch.setattr(search.validation, "attempt", attempt)
    assert search.run().best.candidate.weighting == expected


@pytest.mark.parametrize(("best_hinge", "best_log"), [(100.0, 4.5), (0.3, 0.1)])
def test_a_large_ridge_of_the_hinge_tells_where_the_log_loss_is_good(best_hinge, best_log, monkeypatch):
    """The log loss is tenfold at three times that ridge, or a third of it, and other ridges then hopeless."""
    X, y = RNG.normal(size=(200, 3)), np.arange(200) % 10
    search = Search(Dataset.from_arrays(X, y), ThreadEngine(1), Limits(1 << 30))
    known = search.validation.attempt(search.first)

    def attempt(candidate, rival=None):
        of_hinge = candidate.loss == HINGE
        off = abs(np.log(candidate.ridge / (best_hinge if of_hinge else best_log)))
        loss = (1.0 + of_hinge) * (1.0 + off if of_hinge else 10.0 ** (off / np.log(3.0))) + candidate.alpha
        return replace(known, candidate=candidate, quality=0.5, log_loss=loss)

    monkeypatch.setattr(search.validation, "attempt", attempt)
    assert search.run().best.candidate == Candidate(None, "log_loss", pytest.approx(best_log, rel=0.2))


def test_held_out_rows_are_not_learned_from():
    """With labels drawn at random nothing can be right more often than by chance."""
    X, y = RNG.normal(size=(500, 75)), RNG.integers(0, 2, 500)
    searched = Search(Dataset.from_arrays(X, y), ThreadEngine(1), Limits(1 << 30)).run()
    assert abs(searched.best.quality - 0.5) < 0.1


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize(("largest", "weightings"), [(10.0, {"scaled", "counts"}), (1e6, {"scaled"})])
def test_columns_of_very_unlike_sizes_are_tried_in_units_of_their_deviation_alone(largest, weightings):
    X = RNG.normal(size=(200, 3)) * [1.0, 3.0, largest]
    y = (X @ [1.0, 1.0, 1 / largest] > 0).astype(int)
    data = Dataset.from_arrays(X, y, features={"dense": ["a", "b", "c"]})
    searched = Search(data, ThreadEngine(1), Limits(1 << 30)).run()
    assert {trial.candidate.weighting for trial in searched.trials} == weightings


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize(("unit", "weightings"), [(5.0, {"scaled", "counts"}), (20.0, {"scaled"})])
def test_large_columns_are_tried_in_units_of_their_deviation_alone(unit, weightings):
    """Unscaled, a ridge would hardly shrink their weights."""
    X = np.random.default_rng(1).normal(size=(200, 3))
    data = Dataset.from_arrays(unit * X, (X[:, 0] > 0).astype(int), features={"dense": ["a", "b", "c"]})
    searched = Search(data, ThreadEngine(1), Limits(1 << 30)).run()
    assert {trial.candidate.weighting for trial in searched.trials} == weightings


@pytest.mark.exhaustive
def test_dense_columns_are_boosted_too(tmp_path):
    X, y = load_digits(n_class=4, return_X_y=True)
    X = X[:, ::2]
    result = bigmc.fit(X[:300], tmp_path / "m", label=y[:300], memory_limit="1GB")
    assert set(result["rivals"]) == {"sparse", "boost", "sum"}
    model = bigmc.load_model(tmp_path / "m")
    assert np.mean(model.predict(X[300:]) == y[300:]) > 0.85
    assert model.predict_proba(X[300:]).shape == (len(X) - 300, 4)


def test_sets_of_labels(tmp_path):
    table = documents(200)
    table["label"] = [[label] + (["short"] if len(text) < 24 else []) for text, label in table.values]
    table.to_parquet(tmp_path / "t.parquet")
    result = bigmc.fit(tmp_path / "t.parquet", tmp_path / "m", **OPTIONS)
    assert result["test"]["by"] == "micro_f1"
    assert result["test"]["micro_f1"] > 0.6
    chances = bigmc.load_model(tmp_path / "m").predict_proba(["river sea", "leaf"])
    assert ((chances >= 0) & (chances <= 1)).all()


def test_a_time_limit_ends_the_search_but_not_the_training(tmp_path, monkeypatch):
    train, left = models.train_with_size, []

    def timed(samples, winner, engine, start, ends, after):
        left.append(ends - time.monotonic())
        return train(samples, winner, engine, start, ends, after)

    monkeypatch.setattr(models, "train_with_size", timed)
    result = bigmc.fit(
        documents(),
        tmp_path / "m",
        text="text",
        label="label",
        time_limit=0.0,
        memory_limit="1GB",
        max_features=9,
    )
    assert len(result["trials"]) == 1
    assert "time" in result["ended"]
    assert 5.0 < left[0] <= 10.0  # a model hardly begun would not be the one judged


def test_a_label_is_needed(tmp_path):
    with pytest.raises(DataError, match="label"):
        bigmc.fit(documents(), tmp_path / "m", text="text")


@pytest.mark.parametrize("name", ["rows.svm", "rows.svm.gz"])
def test_svmlight_files_have_their_own_labels(tmp_path, name):
    X, y = (part[::4] for part in load_digits(n_class=3, return_X_y=True))
    path = tmp_path / name
    with gzip.open(path, "wb") if name.endswith("gz") else path.open("wb") as file:
        dump_svmlight_file(X, y, file, zero_based=False)
    result = bigmc.fit(path, tmp_path / "m", time_limit=0.0)
    matrix, labels = load_svmlight_file(str(path))
    assert result["n_classes"] == 3
    model = bigmc.load_model(tmp_path / "m")
    assert model.classes_.tolist() == [0, 1, 2]
    assert np.mean(model.predict(matrix) == labels) > 0.97


def test_trials_are_written_down(fitted):
    _, folder, _ = fitted
    first = read_work_file(folder / "m.fit" / "trial-000.json")
    assert Candidate(**first["candidate"]) == Candidate("tfidf")


@pytest.mark.parametrize("n", [6, 10, 25])
def test_few_rows_make_a_model(n, tmp_path):
    rows = pd.DataFrame({"a": np.linspace(-1, 1, n), "y": np.where(np.arange(n) % 2, "odd", "even")})
    bigmc.fit(rows, tmp_path / "m.model", label="y")
    assert set(bigmc.load_model(tmp_path / "m.model").predict(rows)) <= {"odd", "even"}


@pytest.mark.parametrize(("n_shared", "said"), [(16, True), (40, False)])
def test_labels_that_are_numbers_to_be_estimated_are_told(n_shared, said, tmp_path):
    X = RNG.normal(size=(48, 2))
    labels = np.maximum(np.arange(48) - n_shared, -1)
    result = bigmc.fit(
        pd.DataFrame({"x": X[:, 0], "label": labels}), tmp_path / "m", label="label", time_limit=1e-9
    )
    assert any("the only one of their label" in note for note in result["notes"]) == said


def test_labels_that_differ_in_every_row_are_refused(tmp_path):
    rows = pd.DataFrame({"x": RNG.normal(size=48), "price": np.arange(48) * 1.5})
    with pytest.raises(DataError, match=r"has a label of its own; .*make classes of its ranges"):
        bigmc.fit(rows, tmp_path / "m", label="price", time_limit=1e-9)
    assert not (tmp_path / "m").exists()


def test_a_class_of_one_row_of_two_is_refused():
    data = Dataset.from_arrays(np.linspace(-1, 1, 30)[:, None], [0] + [1] * 29)
    with pytest.raises(DataError, match="too few: without those held out, all are of one class"):
        Validation(data, ThreadEngine(1), Limits(1 << 30))


def test_weights_that_are_all_0_are_named_and_not_few_rows(tmp_path):
    rows = pd.DataFrame({"x": RNG.normal(size=90), "label": ["a", "b", "c"] * 30, "weight": 0})
    with pytest.raises(DataError, match="have a weight of 0; give rows a weight above 0"):
        bigmc.fit(rows, tmp_path / "m.model", label="label", weight="weight")


def test_a_table_without_rows_says_so(tmp_path):
    with pytest.raises(DataError, match="no rows"):
        bigmc.fit(pd.DataFrame({"a": [], "y": []}), tmp_path / "m.model", label="y")


@pytest.mark.parametrize("seed", range(8))
def test_every_fold_of_few_rows_leaves_both_classes(seed):
    data = Dataset.from_arrays(np.ones((8, 1)), [0, 1] * 4)
    folds = cross_validated(data, ThreadEngine(1), seed)
    assert sorted(np.concatenate([fold.places for fold in folds])) == list(range(8))
    for fold in folds:
        assert set(data.labels()[fold.learns > 0]) == {0, 1}
        assert not fold.learns[fold.places].any()


@pytest.mark.exhaustive
def test_a_penalty_is_strong_where_a_few_of_many_columns_matter():
    """Five of 120 columns matter: the truth is known, and a model of all columns errs more."""
    rng = np.random.default_rng(12)
    X = rng.normal(size=(1_300, 120))
    y = (X[:, :5].sum(axis=1) + rng.normal(size=1_300) > 0).astype(int)
    data = Dataset.from_arrays(X[:300], y[:300])
    searched = Search(data, ThreadEngine(1), Limits(1 << 30)).run()
    best = searched.best.candidate
    assert best.alpha >= 3.0
    scores = []
    for candidate in (best, replace(best, alpha=0.0)):
        model = bigmc.SparseClassifier(**candidate.options(300).parameters())
        scores.append(model.fit(X[:300], y[:300]).score(X[300:], y[300:]))
    assert scores[0] > scores[1] + 0.02
