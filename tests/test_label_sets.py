"""Labels that are sets, from files and arrays to predictions, against scikit-learn's metrics."""

import json
import os
import signal
import subprocess
import sys

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    label_ranking_average_precision_score,
    label_ranking_loss,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import bigmc
from bigmc import api, cli
from bigmc.errors import BigmcError, DataError, ModelError
from bigmc.learners.thresholds import best_threshold
from bigmc.model import LinearModel, load_model
from bigmc.store.dataset import Dataset
from bigmc.store.verify import verify

pytestmark = pytest.mark.slow

RANKING = {"loss": "multilabel_ranking", "alpha": 1e-3, "tol": 1e-4}
TOPICS = {
    "sport": "goal match team league season",
    "money": "bank loan share price market",
    "science": "atom cell theory proof lab",
    "music": "song band chord drum album",
}


def documents(n=400, seed=0):
    """Texts on none to three topics, and the sets of these."""
    generator = np.random.default_rng(seed)
    names, texts, sets = list(TOPICS), [], []
    for _ in range(n):
        chosen = generator.permutation(4)[: generator.integers(0, 4)]
        words = [word for t in chosen for word in generator.permutation(TOPICS[names[t]].split())[:3]]
        texts.append(" ".join(generator.permutation([*words, "the", "and", f"w{generator.integers(50)}"])))
        sets.append([names[t] for t in chosen])
    return texts, sets


def indicator(sets, labels):
    return np.array([[label in s for label in labels] for s in sets], int)


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    texts, sets = documents()
    path = tmp_path_factory.mktemp("sets") / "documents.parquet"
    pq.write_table(pa.table({"text": texts, "topics": sets}), path, row_group_size=100)
    return path


@pytest.fixture(scope="module")
def dataset(parquet, tmp_path_factory):
    to = tmp_path_factory.mktemp("sets") / "documents.bigmc"
    return bigmc.ingest(parquet, to=to, text="text", label="topics", hash_bits=10)


@pytest.fixture(scope="module")
def model(dataset, tmp_path_factory):
    to = tmp_path_factory.mktemp("sets") / "topics.model"
    result = api.train("sparse", dataset.path, to, **RANKING)
    assert result["converged"]
    return to


def truth_of(dataset, split="test"):
    samples = dataset[split]
    column = pa.chunked_array([c for s in samples.shards for c in s.table(["label"]).column("label").chunks])
    return indicator([{samples.classes[c] for c in row} for row in column.to_pylist()], samples.classes)


def matrices(n=120, d=12, m=5, seed=1):
    generator = np.random.default_rng(seed)
    X = np.round(3 * generator.standard_normal((n, d)))
    Y = (X / 3 @ generator.standard_normal((d, m)) + generator.standard_normal((n, m)) > 0.8).astype(int)
    return X, Y


def test_the_store_holds_what_the_lists_say(dataset, parquet):
    assert verify(dataset.path) == []
    assert dataset.has_sets
    assert api.info(dataset.path)["label_sets"] is True
    given = pq.read_table(parquet).column("topics").to_pylist()
    for shard in dataset.shards:
        table = shard.table(["label", "row_id"])
        for codes, row in zip(table["label"].to_pylist(), table["row_id"].to_pylist(), strict=True):
            assert [dataset.classes[c] for c in codes] == sorted(given[row])
    assert [] in given
    with pytest.raises(DataError, match="sets"):
        dataset.labels()


def test_figures_are_those_of_scikit_learn(dataset, model):
    found = api.evaluate(model, dataset.path, per_class=True)
    loaded = load_model(model)
    samples = dataset["test"]
    scores = np.concatenate([loaded.shard_scores(samples, s) for s in range(samples.n_shards)])
    truth, predicted = truth_of(dataset), (scores > loaded.label_threshold).astype(int)
    assert found["accuracy"] == accuracy_score(truth, predicted)
    assert found["micro_f1"] == pytest.approx(f1_score(truth, predicted, average="micro"))
    assert found["macro_f1"] == pytest.approx(f1_score(truth, predicted, average="macro"))
    assert found["ranking_loss"] == pytest.approx(label_ranking_loss(truth, scores))
    expected = label_ranking_average_precision_score(truth, scores)
    assert found["ranking_precision"] == pytest.approx(expected)
    per_class = f1_score(truth, predicted, average=None)
    assert [found["per_class"][c]["f1"] for c in loaded.classes] == pytest.approx(per_class)
    assert found["micro_f1"] > 0.9
    one = bigmc.load_model(model)
    assert one.score(samples) == found["accuracy"]
    np.testing.assert_array_equal(one.predict(samples), predicted)


@pytest.mark.parametrize("room", [1 << 20, 3000])
def test_ranking_figures_with_ties_and_tiles_of_classes(room):
    generator = np.random.default_rng(5)
    X = np.eye(6)[generator.integers(0, 6, 80)]
    Y = (generator.random((80, 7)) < 0.4).astype(int)
    Y[0], Y[1] = 0, 1
    coef = generator.integers(-1, 2, (6, 7)).astype(float)
    made = LinearModel(
        kind="sparse", classes=np.arange(7), n_features=6, features=np.arange(6), coef=coef,
        intercept=np.zeros(7), label_threshold=0.5,
    )  # fmt: skip
    from bigmc.inference.evaluation.label_sets import Places, count_sets
    from bigmc.inference.evaluation.labelled import LabelledDataset

    places = Places(np.arange(7), np.arange(7), 7)
    part = LabelledDataset(Dataset.from_arrays(X, Y)).part(0, made, room)
    counts = count_sets(part, made, places).figures(80)
    scores = X @ coef
    assert counts["ranking_loss"] == pytest.approx(label_ranking_loss(Y, scores))
    assert counts["ranking_precision"] == pytest.approx(label_ranking_average_precision_score(Y, scores))
    assert counts["accuracy"] == accuracy_score(Y, scores > 0.5)


def test_labels_the_model_does_not_know_are_missed(model, tmp_path):
    texts, sets = documents(50, seed=3)
    sets[0], sets[1] = ["cooking"], ["sport", "cooking"]
    source = pa.table({"text": texts, "topics": sets})
    other = bigmc.ingest(
        source, to=tmp_path / "d", text="text", label="topics", hash_bits=10, split={"test": 1}
    )
    found = api.evaluate(model, other.path, per_class=True)
    assert found["n_unknown_labels"] == 2
    assert found["per_class"]["cooking"]["f1"] == 0
    assert found["accuracy"] <= 48 / 50


def test_predictions_are_lists(dataset, model, parquet, tmp_path):
    loaded = load_model(model)
    api.predict(model, dataset.path, tmp_path / "stored.parquet", split="test", keep="topics")
    stored = pq.read_table(tmp_path / "stored.parquet")
    expected = bigmc.load_model(model).predict(dataset["test"])
    assert stored.schema.field("predicted_labels").type == pa.list_(pa.string())
    np.testing.assert_array_equal(indicator(stored["predicted_labels"].to_pylist(), loaded.classes), expected)
    api.predict(model, parquet, tmp_path / "raw.parquet", scores=True, keep="topics")
    raw = pq.read_table(tmp_path / "raw.parquet")
    scores = np.stack([raw[f"score_{label}"].to_numpy() for label in loaded.classes], axis=1)
    np.testing.assert_array_equal(
        indicator(raw["predicted_labels"].to_pylist(), loaded.classes), scores > loaded.label_threshold
    )
    rows = stored["row_id"].to_pylist()
    assert raw["predicted_labels"].take(rows).to_pylist() == stored["predicted_labels"].to_pylist()
    assert [*map(set, raw["topics"].take(rows).to_pylist())] == [*map(set, stored["topics"].to_pylist())]


def test_refusals_name_what_helps(model, tmp_path):
    """Of probabilities, and of a text in which nobody said what separates labels."""
    file = tmp_path / "joined.csv"
    file.write_text("text,topics\ngoal match,sport\nbank loan,sport; money\natom cell,[]\n")
    with pytest.raises(ModelError) as refused:
        api.predict(model, file, tmp_path / "p.csv", proba=True)
    assert "--calibrate" in str(refused.value)
    assert "log_loss" not in str(refused.value)  # a loss for one label per row
    with pytest.raises(DataError, match="--label-separator"):
        api.evaluate(model, file)
    assert api.evaluate(model, file, label_separator="; ")["n_samples"] == 3


def test_the_threshold_has_the_best_micro_f1(dataset, model):
    loaded = load_model(model)
    samples = dataset["train"]
    scores = np.concatenate([loaded.shard_scores(samples, s) for s in range(samples.n_shards)])
    truth = truth_of(dataset, "train")
    found = f1_score(truth, scores > loaded.label_threshold, average="micro")
    best = max(f1_score(truth, scores > t, average="micro") for t in np.unique(scores)[::5])
    assert found >= best - 2e-3


def test_the_threshold_with_weights_is_that_of_repeated_samples():
    X, Y = matrices()
    repeats = 1 + np.arange(len(X)) % 3
    model = bigmc.SparseClassifier(**RANKING).fit(X, Y).model_
    engine = bigmc.engine.ThreadEngine(1)
    weighted = best_threshold(model, Dataset.from_arrays(X, Y), repeats.astype(float), engine, 1 << 30)
    twice = Dataset.from_arrays(np.repeat(X, repeats, axis=0), np.repeat(Y, repeats, axis=0))
    assert weighted == best_threshold(model, twice, None, engine, 1 << 20)
    assert abs(weighted) < 2


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", ["multilabel_ranking", "multitask_squared_hinge"])
def test_fit_takes_and_predict_gives_indicator_arrays(loss, sparse):
    X, Y = matrices()
    given = scipy.sparse.csr_matrix(Y) if sparse else Y
    fitted = bigmc.SparseClassifier(**RANKING | {"loss": loss}).fit(X, given)
    assert fitted.certificate_.gap <= 1e-4
    assert fitted.classes_.tolist() == list(range(5))
    scores, predicted = fitted.decision_function(X), fitted.predict(X)
    assert scores.shape == predicted.shape == Y.shape
    np.testing.assert_array_equal(predicted, scores > fitted.model_.label_threshold)
    assert fitted.score(X, Y) == accuracy_score(Y, predicted)
    assert f1_score(Y, predicted, average="micro") > 0.7
    if loss == "multitask_squared_hinge":
        assert fitted.model_.label_threshold == 0
    again = bigmc.SparseClassifier(**RANKING | {"loss": loss}).fit(Dataset.from_arrays(X, Y))
    np.testing.assert_array_equal(again.predict(Dataset.from_arrays(X)), predicted)
    assert again.score(Dataset.from_arrays(X, Y)) == fitted.score(X, Y)
    lazy = da.from_array(X, chunks=(50, 12))
    np.testing.assert_array_equal(again.fit(lazy, given).predict(lazy), predicted)


def test_multitask_on_sets_is_one_classifier_for_each_label():
    X, Y = matrices()
    options = {"loss": "multitask_squared_hinge", "penalty": "l1", "alpha": 0.01, "tol": 1e-7}
    together = bigmc.SparseClassifier(**options).fit(X, Y)
    one_by_one = OneVsRestClassifier(bigmc.SparseClassifier(**options)).fit(X, Y)
    # of two classes one task mirrors the other
    halves = sum(0.5 * e.objective_ for e in one_by_one.estimators_)
    assert together.objective_ == pytest.approx(halves, rel=1e-6)
    np.testing.assert_array_equal(together.predict(X), one_by_one.predict(X))


def test_a_model_is_saved_with_its_threshold(tmp_path):
    X, Y = matrices()
    fitted = bigmc.SparseClassifier(**RANKING).fit(X, Y)
    fitted.save(tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert loaded.label_threshold == fitted.model_.label_threshold
    assert loaded.info()["label_threshold"] == loaded.label_threshold
    np.testing.assert_array_equal(bigmc.load_model(tmp_path / "m").predict(X), fitted.predict(X))
    assert "label_threshold" not in bigmc.SparseClassifier().fit(X, Y[:, 0]).model_.info()


def test_sample_weights_and_unusable_labels():
    X, Y = matrices()
    weights = 1.0 + (np.arange(len(X)) % 2)
    options = RANKING | {"alpha": 0.05, "tol": 1e-8, "fit_intercept": True}
    weighted = bigmc.SparseClassifier(**options).fit(X, Y, sample_weight=weights)
    repeats = weights.astype(int)
    doubled = bigmc.SparseClassifier(**options).fit(
        np.repeat(X, repeats, axis=0), np.repeat(Y, repeats, axis=0)
    )
    assert weighted.objective_ == pytest.approx(doubled.objective_, rel=3e-8)
    one = bigmc.SparseClassifier(**RANKING)
    with pytest.raises(DataError, match=r"class_weight needs one label per sample.*sample_weight"):
        clone(one).set_params(class_weight="balanced").fit(X, Y)
    for useless in (np.zeros_like(Y), np.ones_like(Y)):
        with pytest.raises(DataError, match="nothing to learn"):
            clone(one).fit(X, useless)
    with pytest.raises(BigmcError, match=r"one label per sample.*squared_hinge"):
        clone(one).fit(X, Y[:, 0])
    with pytest.raises(BigmcError, match=r"sets of labels.*multilabel_ranking"):
        bigmc.SparseClassifier(alpha=1e-4).fit(X, Y)
    for learner in (bigmc.MultiBoostClassifier(), bigmc.MinimaxRiskClassifier()):
        for given in ((X, Y), (Dataset.from_arrays(X, Y),)):
            with pytest.raises(DataError, match=r"sets.*multilabel_ranking"):
                learner.fit(*given)


@pytest.mark.exhaustive(keep=34)
@parametrize_with_checks([bigmc.SparseClassifier(alpha=1e-4, loss="multitask_squared_hinge")])
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("made", ["indicator", "sparse", "sets", "jsonl", "csv", "numbers"])
def test_the_same_labels_from_every_source(made, tmp_path):
    texts, sets = documents(60)
    labels = sorted(TOPICS)
    common = {"split": {"train": 1.0}, "memory_limit": "200MB"}
    if made in ("indicator", "sparse", "sets"):
        X, Y = np.arange(180.0).reshape(60, 3), indicator(sets, labels)
        given = {"indicator": Y, "sparse": scipy.sparse.csc_matrix(Y), "sets": [set(s) for s in sets]}[made]
        found = bigmc.ingest(X, to=tmp_path / "d", label=given, **common)
    elif made in ("jsonl", "numbers"):
        rows = [
            {"text": t, "topics": [labels.index(x) for x in s] if made == "numbers" else s + s[:1]}
            for t, s in zip(texts, sets, strict=True)
        ]
        (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        found = bigmc.ingest(tmp_path / "d.jsonl", to=tmp_path / "d", text="text", label="topics", **common)
    else:
        lines = ["text,topics", *(f"{t},{'|'.join(s) or '[]'}" for t, s in zip(texts, sets, strict=True))]
        (tmp_path / "d.csv").write_text("\n".join(lines) + "\n")
        found = bigmc.ingest(
            tmp_path / "d.csv", to=tmp_path / "d", text="text", label="topics", label_separator="|", **common
        )
    expected = labels if made in ("sets", "jsonl", "csv") else [0, 1, 2, 3]
    assert found.classes.tolist() == expected
    order = np.argsort(found.row_ids())
    rows = found.label_sets()[order]
    assert [[labels[c] for c in row if c >= 0] for row in rows] == [sorted(s) for s in sets]
    assert verify(found.path) == []


def test_lists_are_appended_to_labels_that_were_joined_by_a_separator(tmp_path):
    (tmp_path / "d.csv").write_text("text,topics\none two,x|y\ntwo six,y\nsix ten,[]\n")
    rows = [{"text": "ten one", "topics": ["z", "x"]}, {"text": "one six", "topics": []}]
    (tmp_path / "more.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    named = {"text": "text", "label": "topics", "label_separator": "|", "split": {"train": 1.0}}
    bigmc.ingest(tmp_path / "d.csv", to=tmp_path / "d", **named)
    both = bigmc.ingest(tmp_path / "more.jsonl", to=tmp_path / "d", append=True)
    sets = both.label_sets()[np.argsort(both.row_ids())]
    named_sets = [[both.classes[code] for code in row if code >= 0] for row in sets]
    assert [sorted(row) for row in named_sets] == [["x", "y"], ["y"], [], ["x", "z"], []]


def test_joined_labels_are_appended_to_lists_with_the_separator_of_each_append(tmp_path):
    texts, sets = documents(90, seed=5)
    rows = list(zip(texts, sets, strict=True))
    named = {"text": "text", "label": "topics", "split": {"train": 1.0}}
    table = pa.table({"text": texts, "topics": [list(topics) for topics in sets]})
    whole = api.ingest(table, tmp_path / "w", **named)
    api.ingest(table.slice(0, 30), tmp_path / "d", **named)
    for separator, some in (("|", rows[30:60]), ("; ", rows[60:])):
        lines = [f"{text},{separator.join(topics) or '[]'}\n" for text, topics in some]
        file = tmp_path / f"{len(separator)}.csv"
        file.write_text("text,topics\n" + "".join(lines))
        with pytest.raises(DataError, match=r"a set of labels, and .*--label-separator"):
            api.ingest(file, tmp_path / "d", append=True)
        api.ingest(file, tmp_path / "d", append=True, label_separator=separator)
    both = Dataset.open(tmp_path / "d")
    np.testing.assert_array_equal(both.classes, whole.classes)
    np.testing.assert_array_equal(truth_of(both, "train"), truth_of(whole, "train"))
    # nothing separates single labels
    single = pa.table({"text": texts, "topics": [text[:1] for text in texts]})
    api.ingest(single, tmp_path / "one", **named)
    with pytest.raises(DataError, match=r"one label.*without --label-separator"):
        api.ingest(file, tmp_path / "one", append=True, label_separator="; ")


def test_bad_labels_are_refused_or_set_aside(tmp_path):
    table = pa.table(
        {
            "text": ["one two", "two six", "six ten", "ten one"],
            "topics": [["x"], None, ["y", None], ["y", "x"]],
        }
    )
    with pytest.raises(DataError, match="missing"):
        bigmc.ingest(table, to=tmp_path / "a", text="text", label="topics")
    found = bigmc.ingest(
        table, to=tmp_path / "b", text="text", label="topics", on_bad_row="quarantine", split={"train": 1.0}
    )
    assert found.n_samples == 2
    with pytest.raises(DataError, match="0 and 1"):
        bigmc.ingest(np.eye(3), to=tmp_path / "c", label=np.eye(3) * 2)
    with pytest.raises(DataError, match="a list of labels and others one"):
        bigmc.ingest([np.eye(3), np.eye(3)], to=tmp_path / "d", label=[np.eye(3), np.arange(3)])
    holes = np.array([[1.0, np.nan], [2.0, 1.0]])
    kept = bigmc.ingest(holes, to=tmp_path / "f", label=np.eye(2), missing="keep", split={"train": 1.0})
    with pytest.raises(DataError, match="feature 1 has missing values"):
        bigmc.SparseClassifier(**RANKING).fit(kept["train"])
    dates = pa.table({"t": ["a b"], "y": pa.array([[1]], pa.list_(pa.time32("s")))})
    with pytest.raises(DataError, match="cannot name a class"):
        bigmc.ingest(dates, to=tmp_path / "e", text="t", label="y")


def test_parts_append_and_several_shards_agree_with_one_ingest(tmp_path):
    texts, sets = documents(300)
    sets[280] = ["new"]
    pq.write_table(
        pa.table({"text": texts[:250], "topics": sets[:250]}), tmp_path / "a.parquet", row_group_size=50
    )
    pq.write_table(pa.table({"text": texts[250:], "topics": sets[250:]}), tmp_path / "b.parquet")
    options = {"text": "text", "label": "topics", "hash_bits": 8}
    for part in (1, 0):
        api.ingest_part([tmp_path / "a.parquet"], tmp_path / "d", (part, 2), **options)
    bigmc.ingest([tmp_path / "a.parquet"], to=tmp_path / "d", **options)
    grown = bigmc.ingest([tmp_path / "b.parquet"], to=tmp_path / "d", append=True)
    whole = bigmc.ingest([tmp_path / "a.parquet", tmp_path / "b.parquet"], to=tmp_path / "e", **options)
    assert verify(tmp_path / "d") == []

    def rows(dataset):
        named = [[dataset.classes[c] for c in row if c >= 0] for row in dataset.label_sets()]
        return {i: sorted(s) for i, s in zip(dataset.row_ids().tolist(), named, strict=True)}

    assert rows(grown) == rows(whole) == {i: sorted(s) for i, s in enumerate(sets)}
    single = pa.table({"text": ["a b"], "topics": ["sport"]})
    pq.write_table(single, tmp_path / "c.parquet")
    with pytest.raises(DataError, match="have a set of labels"):
        bigmc.ingest([tmp_path / "c.parquet"], to=tmp_path / "d", append=True)


def test_a_killed_ingest_continues_to_the_same_bytes(parquet, dataset, tmp_path):
    code = (
        "import sys, bigmc, os, signal; import bigmc.ingestion.writing.shard_placement as p\n"
        "p.replace_rows_table = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "bigmc.ingest(sys.argv[1], to=sys.argv[2], text='text', label='topics', hash_bits=10)"
    )
    to = tmp_path / "documents.bigmc"
    run = subprocess.run([sys.executable, "-c", code, parquet, to], env=os.environ, check=False)
    assert run.returncode == -signal.SIGKILL
    found = bigmc.ingest(parquet, to=to, text="text", label="topics", hash_bits=10)
    assert found.identity == dataset.identity


def test_out_of_core_training_predicts_alike(dataset, monkeypatch):
    whole = bigmc.SparseClassifier(**RANKING).fit(dataset["train"])
    from bigmc.solvers.sparse.solve import solve

    monkeypatch.setattr(
        "bigmc.learners.sparse.solve", lambda run, start: solve(run, start, chunk_bytes=200_000)
    )
    in_chunks = bigmc.SparseClassifier(**RANKING | {"tol": 1e-2}).fit(dataset["train"])
    assert in_chunks.certificate_.gap <= 1e-2
    assert in_chunks.objective_ == pytest.approx(whole.objective_, rel=1e-2)
    test = dataset["test"]
    assert (in_chunks.predict(test) == whole.predict(test)).mean() > 0.97


def test_the_command_line(parquet, tmp_path, monkeypatch, capsys):
    def call(*words, code=0):
        monkeypatch.setattr(sys, "argv", ["bigmc", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        assert int(ended.value.code or 0) == code, said.err
        return said.out if code == 0 else said.err

    data, model = tmp_path / "d", tmp_path / "m"
    call("ingest", parquet, "--text", "text", "--label", "topics", "--hash-bits", 10, "--to", data)
    assert json.loads(call("info", data, "--json"))["label_sets"] is True
    for learner in ("boost", "mrc"):
        assert "multilabel_ranking" in call("train", learner, data, "--to", model, code=1)
    options = ("--loss", "multilabel_ranking", "--alpha", 1e-3)
    trained = json.loads(call("train", "sparse", data, "--to", model, *options, "--json"))
    assert trained["converged"]
    measured = json.loads(call("evaluate", model, data, "--to", tmp_path / "e.json", "--json"))
    assert {"accuracy", "micro_f1", "macro_f1", "ranking_loss", "ranking_precision"} <= set(measured)
    call("evaluate", model, data, "--confusion", code=1)
    call("predict", model, parquet, "--to", tmp_path / "p.parquet")
    assert "label_threshold" in json.loads(call("info", model, "--json"))
    call("inspect", model)
    call("verify", model)
    call("report", model, "--to", tmp_path / "r.html", "--dataset", data)
    page = (tmp_path / "r.html").read_text()
    assert "score is above" in page
    assert "micro F1" in page
    call("publish", tmp_path / "e.json", "--to", tmp_path / "best", "--by", "micro_f1")
    words = ("--loss", "multilabel_ranking", "--alphas", 3, "--validation", "test", "--json")
    path = json.loads(call("path", data, "--to", tmp_path / "path", *words))
    assert path["best"]["micro_f1"] == max(row["micro_f1"] for row in path["table"])
