"""Thresholds of sets of labels against every possible one, and models that have one for each label."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from sklearn.metrics import f1_score

import bigmc
from bigmc.errors import DataError, ModelError
from bigmc.model import load_model
from bigmc.training.search.label_thresholds import FEWEST, Thresholds, best_micro_f1, choose_threshold

RNG = np.random.default_rng(6)


def scored(n=120, n_classes=4, decimals=1):
    """Scores with ties, and labels that are likelier where a score is high."""
    scores = RNG.normal(size=(n, n_classes)).round(decimals)
    return scores, scores + RNG.normal(size=scores.shape) > np.linspace(0, 1.5, n_classes)


def every_f1(scores, is_label, average):
    """F1 of every threshold that makes a difference."""
    cuts = np.unique(scores)
    cuts = np.concatenate([[cuts[0] - 1], 0.5 * (cuts[1:] + cuts[:-1])])
    return [f1_score(is_label, scores > cut, average=average, zero_division=0) for cut in cuts]


def test_the_shared_threshold_has_the_best_micro_f1_of_all():
    scores, is_label = scored()
    found, threshold = best_micro_f1(scores, is_label)
    assert found == pytest.approx(max(every_f1(scores, is_label, "micro")))
    assert f1_score(is_label, scores > threshold, average="micro") == pytest.approx(found)


def test_each_label_has_the_best_f1_of_all():
    scores, is_label = scored()
    found, own = choose_threshold(Thresholds.EACH, scores, is_label)
    best = [max(every_f1(scores[:, c], is_label[:, c], "binary")) for c in range(scores.shape[1])]
    assert found == pytest.approx(np.mean(best))
    assert f1_score(is_label, scores > np.array(own), average="macro") == pytest.approx(found)


def test_a_label_of_few_rows_keeps_the_shared_threshold():
    scores, is_label = scored()
    is_label[:, 1] = False
    is_label[: FEWEST - 1, 1] = True
    _, own = choose_threshold(Thresholds.EACH, scores, is_label)
    shared = best_micro_f1(scores, is_label)[1]
    assert own[1] == shared
    assert sum(threshold == shared for threshold in own) == 1


@pytest.fixture(scope="module")
def tags(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tags")
    words = np.array([f"word{i}" for i in range(12)])
    shares = np.geomspace(0.5, 0.04, 6)
    sets = [np.flatnonzero(row) for row in RNG.random((1500, 6)) < shares]
    texts = [" ".join([*words[own[RNG.random(len(own)) < 0.7]], *RNG.choice(words, 3)]) for own in sets]
    table = pa.table({"text": texts, "label": [[f"t{c}" for c in own] for own in sets]})
    return bigmc.ingest(table, folder / "d", text="text", label="label", hash_bits=8)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_fit_with_thresholds_of_its_own_is_better_by_macro_f1(tags, tmp_path):
    shared = bigmc.fit(tags, tmp_path / "s", memory_limit="1GB")
    each = bigmc.fit(tags, tmp_path / "e", memory_limit="1GB", label_thresholds="each")
    assert each["test"]["by"] == "macro_f1"
    assert each["test"]["macro_f1"] > shared["test"]["macro_f1"]
    model = load_model(tmp_path / "e")
    assert len(set(model.label_threshold)) > 1
    measured = bigmc.evaluate(tmp_path / "e", tags)
    assert measured["macro_f1"] == pytest.approx(each["test"]["macro_f1"])
    assert bigmc.fit(tags, tmp_path / "e", memory_limit="1GB", label_thresholds="each")["model"]
    with pytest.raises(ModelError, match="belongs to a fit"):
        bigmc.fit(tags, tmp_path / "e", memory_limit="1GB")


@pytest.mark.slow
def test_every_way_to_predict_keeps_to_the_thresholds(tags, tmp_path):
    bigmc.fit(tags, tmp_path / "m", memory_limit="1GB", label_thresholds="each", time_limit=0.0)
    model = bigmc.load_model(tmp_path / "m")
    expected = model.decision_function(tags["test"]) > np.array(model.model_.label_threshold)
    np.testing.assert_array_equal(np.asarray(model.predict(tags["test"])), expected)
    bigmc.predict(tmp_path / "m", tags, tmp_path / "p.parquet", split="test")
    said = pa.parquet.read_table(tmp_path / "p.parquet").sort_by("row_id").column("predicted_labels")
    ids = np.argsort(tags["test"].row_ids())
    classes = model.classes_
    assert said.to_pylist() == [[classes[c] for c in np.flatnonzero(row)] for row in expected[ids]]
    assert bigmc.report(tmp_path / "m", tmp_path / "r.html")


@pytest.mark.slow
def test_thresholds_must_be_of_the_classes(tags, tmp_path):
    bigmc.fit(tags, tmp_path / "m", memory_limit="1GB", label_thresholds="each", time_limit=0.0)
    model = load_model(tmp_path / "m")

    with pytest.raises(ModelError, match="2 thresholds for 6"):
        replace(model, label_threshold=(0.0, 1.0))
    with pytest.raises(DataError, match="shared or each"):
        bigmc.fit(tags, tmp_path / "n", label_thresholds="every")


def test_labels_that_are_no_sets_have_no_thresholds(tmp_path):
    """Nothing is searched, and the same command without the option goes on with the dataset."""
    table = pa.table({"x": RNG.random(60), "label": ["a", "b"] * 30})
    options = {"dense": "x", "label": "label", "memory_limit": "500MB", "time_limit": 0.0}
    with pytest.raises(DataError, match="each row has one label, so no label has a threshold; leave"):
        bigmc.fit(table, tmp_path / "m", label_thresholds="each", **options)
    assert not (tmp_path / "m").exists()
    assert not list((tmp_path / "m.fit").iterdir())
    assert bigmc.fit(table, tmp_path / "m", **options)["trials"]
