"""A learner unlike any there is goes through every command by its registry entries alone."""

import json
import sys
from dataclasses import dataclass
from functools import cached_property

import click
import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import dump_svmlight_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.metrics import accuracy_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import bigmc
from bigmc import cli
from bigmc.errors import BigmcError, DataError, ModelError
from bigmc.estimators import CLASSIFIERS, Classifier, SparseClassifier
from bigmc.learners import LEARNERS, Learner, Trained
from bigmc.learners.base import COUNT
from bigmc.model import KINDS, Model, load_model, verify_model
from bigmc.model.column_reader import column_runs, row_scale
from bigmc.model.linear_scoring import SCRATCH, best_codes
from bigmc.options.learners import OPTIONS, LearnerOptions
from bigmc.store.weighting import Weighting

ENTRIES = 5  # a feature is used if so many samples have it
TEXT = {"weighting": "l2", "text": "text", "label": "label", "hash_bits": 8, "memory_limit": "100MB"}


def columns_above(shard, features, weighting, threshold, scratch_bytes=SCRATCH):
    """Yield for each feature the rows of a shard whose weighted value is above a threshold."""
    scale = row_scale(shard, weighting, None, scratch_bytes)
    for run in column_runs(shard, features, scratch_bytes, 8, Weighting()):
        for j, start, stop in zip(range(run.first, run.last), run.starts, run.stops, strict=True):
            rows, values = run.rows[start:stop], run.data[start:stop].astype(np.float64)
            yield j, rows[(values if scale is None else values * scale[rows]) > threshold]


@dataclass(frozen=True, eq=False)
class StumpModel(Model):
    """Each feature that exceeds a threshold votes for every class."""

    features: np.ndarray
    threshold: float
    votes: np.ndarray

    def validate(self):
        super().validate()
        if self.votes.shape != (len(self.features), self.n_classes):
            raise ModelError("the votes do not fit")

    def to_arrays(self):
        return {"split": self.features, "threshold": np.array([self.threshold]), "votes": self.votes}

    @classmethod
    def from_arrays(cls, arrays, **record):
        own = {"features": arrays["split"], "threshold": float(arrays["threshold"][0])}
        return cls(**record, **own, votes=arrays["votes"])

    @property
    def used_features(self):
        return self.features

    def class_weights(self, c):
        return self.features, np.maximum(self.votes[:, c], 0)

    def make_scorer(self):
        return StumpScorer(self)


class StumpScorer:
    def __init__(self, model):
        self.model = model

    @cached_property
    def place(self):
        return {int(feature): j for j, feature in enumerate(self.model.features)}

    def rows(self, rows):
        model, scores = self.model, np.zeros((rows.n_rows, self.model.n_classes))
        if rows.n_features != model.n_features:
            raise DataError(f"the samples have {rows.n_features} features, the model {model.n_features}")
        for i in range(rows.n_rows):
            here = slice(rows.indptr[i], rows.indptr[i + 1])
            values = rows.data[here].astype(np.float64)
            if model.weighting.l2:
                values /= np.linalg.norm(values) or 1.0
            for feature, value in zip(rows.indices[here].tolist(), values, strict=True):
                if value > model.threshold and feature in self.place:
                    scores[i] += model.votes[self.place[feature]]
        return scores

    def shard(self, shard, scratch_bytes=SCRATCH):
        return self.of_classes(shard, 0, self.model.n_classes, scratch_bytes)

    def shard_codes(self, shard, scratch_bytes=SCRATCH):
        return best_codes(
            shard.n_rows, self.model.n_classes, 16 * shard.n_rows,
            lambda lo, hi: self.of_classes(shard, lo, hi, scratch_bytes),
        )  # fmt: skip

    def of_classes(self, shard, lo, hi, scratch_bytes):
        scores = np.zeros((shard.n_rows, hi - lo))
        model = self.model
        for j, rows in columns_above(shard, model.features, model.weighting, model.threshold, scratch_bytes):
            scores[rows] += model.votes[j, lo:hi]
        return scores


@dataclass(frozen=True, kw_only=True)
class StumpOptions(LearnerOptions):
    learner = "stump"

    threshold: float = 0.1
    rounds: int = 1
    tol: float = 0.5
    random_state: int = 0


class StumpLearner(Learner):
    """Votes are the shares of the classes among the samples above the threshold, centred."""

    options_type = StumpOptions
    kind = "stump"
    limits = ("rounds",)

    def check(self):
        super().check()
        self._check(COUNT, "rounds")

    def _solve(self, dataset, run):
        rounds, threshold = self.options.rounds, self.options.threshold
        features = np.flatnonzero(dataset.column_nnz() >= ENTRIES)
        counts = np.zeros((len(features), dataset.n_classes))
        for shard in dataset.shards:
            codes = shard.table(["label"])["label"].to_numpy()
            for j, rows in columns_above(shard, features, dataset.weighting, threshold):
                counts[j] += np.bincount(codes[rows], minlength=dataset.n_classes)
        votes = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        votes -= votes.mean(axis=1, keepdims=True)
        model = StumpModel(
            **run.record,
            classes=dataset.classes,
            features=features,
            threshold=threshold,
            votes=votes,
            objective=1.0,
            certificate={"lower": 1 - 1 / (1 + rounds), "upper": 1.0, "gap": 1 / (1 + rounds)},
            n_iter=rounds,
            n_passes=1,
        )
        return Trained(model)


class StumpClassifier(Classifier):
    learner_type = StumpLearner
    takes_sparse = False

    def __init__(self, threshold=0.1, rounds=1, tol=0.5, random_state=0, memory_limit=None, engine=None):
        self.threshold = threshold
        self.rounds = rounds
        self.tol = tol
        self.random_state = random_state
        self.memory_limit = memory_limit
        self.engine = engine

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # one threshold for all features
        return tags


@pytest.fixture
def stump(monkeypatch):
    monkeypatch.setitem(KINDS, "stump", StumpModel)
    monkeypatch.setitem(OPTIONS, "stump", StumpOptions)
    monkeypatch.setitem(LEARNERS, "stump", f"{__name__}:StumpLearner")
    monkeypatch.setitem(CLASSIFIERS, "stump", StumpClassifier)


@parametrize_with_checks([StumpClassifier()])
def test_scikit_learn_compatibility(estimator, check):
    check(estimator)


@pytest.fixture
def texts(tmp_path):
    rng = np.random.default_rng(0)
    words = [[f"w{c}{i}" for i in range(12)] for c in range(3)]
    labels = rng.integers(0, 3, 400)
    lines = [" ".join([*rng.choice(words[c], 6), *rng.choice(words[0], 3)]) for c in labels]
    names = [f"class {c}" for c in labels]
    rows = "".join(f"{line},{name}\n" for line, name in zip(lines, names, strict=True))
    (tmp_path / "rows.csv").write_text("text,label\n" + rows)
    return lines, np.array(names)


def expected_scores(model, lines):
    """The model on values of another library."""
    hashed = HashingVectorizer(n_features=256, ngram_range=(1, 2), norm="l2").transform(lines).toarray()
    return (hashed[:, model.features] > model.threshold) @ model.votes


def test_a_new_kind_is_trained_saved_scored_and_inspected(stump, texts, tmp_path, monkeypatch, capsys):
    lines, labels = texts
    dataset = bigmc.ingest(tmp_path / "rows.csv", tmp_path / "d.bigmc", **TEXT)
    path = tmp_path / "m.model"
    result = bigmc.train("stump", dataset, path, memory_limit="100MB", threshold=0.2)
    assert result["converged"]
    model = load_model(path)
    assert type(model) is StumpModel
    assert result["n_nonzero_features"] == len(model.features) > 20
    assert model.params["learner"] == "stump"
    assert model.params["threshold"] == 0.2
    assert bigmc.train("stump", dataset, path, memory_limit="100MB", threshold=0.2)["objective"] == 1.0
    with pytest.raises(ModelError, match=r"threshold: it has 0.2, asked for 0.3"):
        bigmc.train("stump", dataset, path, memory_limit="100MB", threshold=0.3)

    expected = expected_scores(model, lines)
    predicted = model.classes[np.argmax(expected, axis=1)]
    assert accuracy_score(labels, predicted) > 0.8
    for name, source in (("files", tmp_path / "rows.csv"), ("dataset", dataset)):
        bigmc.predict(path, source, tmp_path / name, scores=True, memory_limit="100MB")
        bigmc.predict(path, source, tmp_path / f"{name} labels", memory_limit="100MB")
        table = pq.read_table(tmp_path / name)
        ids = table["row_id"].to_numpy()
        found = np.column_stack([table[f"score_{label}"] for label in model.classes.tolist()])
        np.testing.assert_allclose(found, expected[ids], atol=1e-12)
        for of in (table, pq.read_table(tmp_path / f"{name} labels")):
            assert of["predicted_label"].to_pylist() == predicted[ids].tolist()

    test = bigmc.evaluate(path, dataset, memory_limit="100MB")
    ids = np.concatenate([s.table(["row_id"])["row_id"].to_numpy() for s in dataset["test"].shards])
    assert test["accuracy"] == accuracy_score(labels[ids], predicted[ids])
    assert bigmc.load_model(path).score(dataset["test"]) == test["accuracy"]

    inspected = bigmc.inspect(path, top=5)
    for c, entry in enumerate(inspected["classes"]):
        assert sorted(entry) == ["features", "label"]
        weights = [feature["weight"] for feature in entry["features"]]
        assert weights == sorted(weights, reverse=True)
        assert weights[0] == model.votes[:, c].max()
        assert all(feature["names"] for feature in entry["features"])
    known = bigmc.api.info(path)
    assert known["kind"] == "stump"
    assert known["n_nonzero_features"] == len(model.features)
    assert bigmc.api.verify(path) == []
    bigmc.report(path, tmp_path / "page.html")
    assert "between" in (tmp_path / "page.html").read_text()

    for command in (f"inspect {path} --json", f"info {path} --json", f"verify {path} --json"):
        monkeypatch.setattr(sys, "argv", ["bigmc", *command.split()])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        assert exit_.value.code == 0
        assert json.loads(capsys.readouterr().out)


def test_a_new_kind_takes_arrays_and_svmlight(stump, tmp_path):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 6)).round(2)
    y = np.where(X[:, 2] > 0.1, "up", "down")
    fitted = StumpClassifier().fit(X, y)
    expected = (X > 0.1) @ fitted.model_.votes
    np.testing.assert_allclose(fitted.decision_function(X), expected[:, 1] - expected[:, 0])
    fitted.save(tmp_path / "m")
    again = StumpClassifier.from_model(load_model(tmp_path / "m"))
    assert again.get_params() == fitted.get_params()
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()
    dump_svmlight_file(X, y == "up", str(tmp_path / "x.svm"), zero_based=False)
    bigmc.predict(tmp_path / "m", tmp_path / "x.svm", tmp_path / "p", memory_limit="100MB")
    labels = pq.read_table(tmp_path / "p")["predicted_label"].to_pylist()
    assert labels == fitted.predict(X).tolist()
    with pytest.warns(ConvergenceWarning, match=r"gap of 0.5, above tol=0.1; raise rounds \(now 1\) or tol"):
        StumpClassifier(tol=0.1).fit(X, y)
    with pytest.raises(BigmcError, match="rounds is 0"):
        StumpClassifier(rounds=0).fit(X, y)


def test_kinds_are_not_mistaken_for_each_other(stump, tmp_path, monkeypatch):
    X, y = np.eye(4), [0, 0, 1, 1]
    fitted = StumpClassifier().fit(X, y)
    fitted.save(tmp_path / "m")
    with pytest.raises(ModelError, match="kind 'stump' cannot become a SparseClassifier"):
        SparseClassifier.from_model(load_model(tmp_path / "m"))
    SparseClassifier(alpha=0.1).fit(X, y).save(tmp_path / "sparse")
    monkeypatch.setitem(KINDS, "sparse", StumpModel)
    with pytest.raises(ModelError, match="inconsistent: 'split' is missing"):
        load_model(tmp_path / "sparse")
    monkeypatch.delitem(KINDS, "stump")
    with pytest.raises(ModelError, match=r"kind 'stump' is unknown to this version of bigmc"):
        load_model(tmp_path / "m")
    assert len(verify_model(tmp_path / "m")) == 1
    monkeypatch.delitem(LEARNERS, "stump")
    monkeypatch.delitem(OPTIONS, "stump")
    with pytest.raises(DataError, match="no learner is called 'stump'; use one of sparse"):
        bigmc.train("stump", "d", tmp_path / "new")


def test_every_learner_has_a_kind_of_model_and_a_command():
    train = cli.app.get_command(click.Context(cli.app), "train")
    commands = set(train.commands)
    assert set(LEARNERS) == commands
    assert set(LEARNERS) <= set(KINDS)
    assert set(CLASSIFIERS) == set(OPTIONS) == set(LEARNERS)
