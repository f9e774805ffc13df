"""The commands end to end, as a shell or a scheduler calls them: one JSON object on stdout, exit codes."""

import io
import json
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import dump_svmlight_file
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score

from bigmc import cli
from bigmc.model import load_model

WORDS = {"fish": "river sea boat scales", "bird": "sky wing nest feather", "tree": "leaf root bark forest"}
INGEST = (
    "ingest docs --text text --label label --weighting l2 --hash-bits 12 --on-bad-row quarantine "
    "--memory 64MB"
)


@pytest.fixture
def run(monkeypatch, capsys):
    """Return a function that runs a command in this process and gives status, stdout and stderr."""

    def call(command: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bigmc", *command.split()])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return int(exit_.value.code or 0), said.out, said.err

    return call


@pytest.fixture
def result(run):
    """Return a function that runs a command with --json and gives the object it printed."""

    def call(command: str) -> dict:
        status, out, err = run(command + " --json")
        assert status == 0, err
        assert len(out.splitlines()) == 1
        return json.loads(out)

    return call


@pytest.fixture(scope="module")
def texts():
    """Return documents with their labels, half of whose words are of their class."""
    rng = np.random.default_rng(0)
    labels = rng.choice(list(WORDS), 900)
    every = " ".join(WORDS.values()).split()
    return [
        (" ".join([*rng.choice(WORDS[label].split(), 3), *rng.choice(every, 6)]), label) for label in labels
    ]


@pytest.fixture(scope="module")
def here(tmp_path_factory, texts):
    """Return a folder with three files (a bad row in the second), a dataset and a model of them."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "docs").mkdir()
    for k in range(3):
        lines = [f"{text},{label}\n" for text, label in texts[300 * k : 300 * k + 300]]
        if k == 1:
            lines.insert(10, "a,row,too,long\n")
        (folder / "docs" / f"{k}.csv").write_text("text,label\n" + "".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in (
            INGEST + " --to d.bigmc",
            "train sparse d.bigmc --to m.model --alpha 1e-3 --tol 1e-2 --memory 64MB",
        ):
            patch.setattr(sys, "argv", ["bigmc", *command.split()])
            with pytest.raises(SystemExit) as exit_:
                cli.main()
            assert exit_.value.code == 0
    return folder


@pytest.fixture(autouse=True)
def inside(here, monkeypatch):
    monkeypatch.chdir(here)


def oracle(texts: list[tuple[str, str]]) -> np.ndarray:
    """Return the scores that scikit-learn's hashing and a matrix product give."""
    model = load_model("m.model")
    hashed = HashingVectorizer(n_features=1 << 12, ngram_range=(1, 2), norm="l2")
    dense = np.zeros((1 << 12, 3))
    dense[model.features] = model.coef
    return hashed.transform([text for text, _ in texts]) @ dense + model.intercept


def test_ingest_info_verify(result, run):
    made = result(INGEST + " --to d.bigmc")  # again: nothing to do
    for info in (made, result("info d.bigmc")):
        assert {"n_samples", "n_features", "n_classes", "nnz", "n_shards", "splits", "bytes"} <= set(info)
    assert (info["n_samples"], info["n_features"], info["n_classes"]) == (900, 4096, 3)
    assert sum(info["splits"].values()) == 900
    for path in ("d.bigmc", "m.model"):
        assert result(f"verify {path}") == {"path": path, "sound": True, "problems": []}
    model = result("info m.model")
    assert model["classes"] == sorted(WORDS)
    assert run("info d.bigmc")[1].startswith("n_samples")


def test_train_reports_and_does_nothing_the_second_time(result, here):
    before = (here / "m.model").stat().st_mtime_ns
    again = result("train sparse d.bigmc --to m.model --alpha 1e-3 --tol 1e-2 --memory 64MB")
    assert (here / "m.model").stat().st_mtime_ns == before
    fresh = result("train sparse d.bigmc --to n.model --alpha 1e-3 --tol 1e-2 --memory 64MB --threads 1")
    assert (here / "n.model").read_bytes() == (here / "m.model").read_bytes()
    assert not list(here.glob("*.wip"))
    for said in (again, fresh):
        bounds = said["certificate"]
        assert bounds["lower"] <= bounds["upper"] == said["objective"]
        assert said["converged"]
        assert bounds["gap"] <= 1e-2
        assert said["n_iter"] >= 1
        assert said["n_passes"] >= 1
        assert 0 < said["n_nonzero_features"] < 4096
        assert said["seconds"] >= 0
        assert said["peak_memory_bytes"] > 0


def test_not_converged_is_a_warning(run, here):
    status, out, err = run(
        "train sparse d.bigmc --to early.model --alpha 1e-3 --tol 1e-9 --max-passes 1 --json"
    )
    assert status == 0
    assert not json.loads(out)["converged"]
    [line] = [line for line in err.splitlines() if line.startswith("bigmc: ")]
    assert "warning: stopped after" in line
    assert "--max-passes (now 1) or --tol" in line
    assert (here / "early.model").exists()


def test_evaluate_is_scikit_learns(result, texts):
    said = result("evaluate m.model d.bigmc --per-class --confusion")
    result("predict m.model d.bigmc --split test --to test.parquet")
    predictions = pq.read_table("test.parquet")
    truth = [texts[i - (i > 310)][1] for i in predictions["row_id"].to_pylist()]
    predicted = predictions["predicted_label"].to_pylist()
    assert said["n_samples"] == len(truth)
    assert said["accuracy"] == pytest.approx(accuracy_score(truth, predicted))
    assert said["macro_f1"] == pytest.approx(f1_score(truth, predicted, average="macro"))
    assert said["confusion"]["matrix"] == confusion_matrix(truth, predicted).tolist()
    assert set(said["per_class"]) == set(WORDS)
    assert set(said["per_class"]["bird"]) == {"precision", "recall", "f1", "support"}
    assert said["accuracy"] > 0.9


def test_predict_raw_files(result, texts, monkeypatch):
    from bigmc.inference import raw_input

    said = result("predict m.model docs --to whole.parquet --scores --on-bad-row quarantine")
    assert (said["n_samples"], said["n_quarantined"]) == (900, 1)
    table = pq.read_table("whole.parquet")
    expected = oracle(texts)
    assert table["row_id"].to_pylist() == [i for i in range(901) if i != 310]
    scores = np.column_stack([table[f"score_{label}"] for label in sorted(WORDS)])
    np.testing.assert_allclose(scores, expected, rtol=1e-6, atol=1e-6)
    best = np.array(sorted(WORDS))[np.argmax(expected, axis=1)]
    assert table["predicted_label"].to_pylist() == best.tolist()
    [reject] = pq.read_table("whole.parquet.rejects.parquet").to_pylist()
    assert (reject["row_id"], reject["line"], reject["path"]) == (310, 12, "docs/1.csv")

    monkeypatch.setattr(raw_input, "SMALLEST_PART", 1 << 12)
    monkeypatch.setattr(raw_input, "LARGEST_PART", 1 << 12)
    again = result("predict m.model docs --to parts.parquet --scores --on-bad-row quarantine --memory 64MB")
    assert again["n_samples"] == 900
    assert pq.read_table("parts.parquet").equals(table)


def test_predict_a_dataset(result, texts):
    everything = result("predict m.model d.bigmc --to all.parquet --scores")
    assert everything["n_samples"] == 900
    table = pq.read_table("all.parquet")
    ids = np.array([i - (i > 310) for i in table["row_id"].to_pylist()])
    assert sorted(ids) == list(range(900))
    scores = np.column_stack([table[f"score_{label}"] for label in sorted(WORDS)])
    np.testing.assert_allclose(scores, oracle(texts)[ids], rtol=1e-6, atol=1e-6)
    result("predict m.model d.bigmc --split train --to train.parquet")
    train = pq.read_table("train.parquet")
    assert train.column_names == ["row_id", "predicted_label"]
    assert np.all(np.diff(train["row_id"].to_numpy()) > 0)  # the order of the source
    label_of = dict(zip(table["row_id"].to_pylist(), table["predicted_label"].to_pylist(), strict=True))
    assert train["predicted_label"].to_pylist() == [label_of[i] for i in train["row_id"].to_pylist()]


def test_inspect(result, run):
    said = result("inspect m.model --top 4")
    for entry in said["classes"]:
        names = {feature["names"][0]["name"] for feature in entry["features"]}
        assert len(entry["features"]) == 4
        assert names & set(WORDS[entry["label"]].split())
    out = run("inspect m.model --top 1")[1]
    assert "features have weight" in out


def test_explain(result, run, here):
    said = result("explain m.model nest,sky,feather --top 2 --classes 2")
    assert [len(said["classes"]), said["label"]] == [2, "bird"]
    assert said["classes"][0]["score"] >= said["classes"][1]["score"]
    assert {entry["word"] for entry in said["classes"][0]["words"]} <= {"nest", "sky", "feather"}
    assert len(said["classes"][0]["words"]) == 2
    status, out, _ = run("explain m.model river")
    assert [status, out.split()[:2]] == [0, ["fish", "score"]]
    assert "river" in out


def test_explain_reads_standard_input(result, here, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("river boat\n"))
    assert result("explain m.model -")["label"] == "fish"


@pytest.mark.parametrize("first_index", [0, 1])
def test_svmlight_is_predicted_with_the_base_and_width_of_training(first_index, result, run, here):
    rng = np.random.default_rng(first_index)
    X = (rng.random((200, 9)) < 0.4).astype(float)
    X[:, 0] = 1
    y = rng.integers(0, 3, 200)
    X[np.arange(200), y + 1] += 2
    base = f"base{first_index}"
    dump_svmlight_file(X, y, str(here / f"{base}.svm"), zero_based=first_index == 0)
    result(f"ingest {base}.svm --split train=1 --to {base}.bigmc")
    result(f"train sparse {base}.bigmc --to {base}.model --alpha 1e-2 --tol 1e-2")
    model = load_model(f"{base}.model")
    assert model.feature_spec["first_index"] == first_index
    # Without its first and last column the file alone says neither base nor width.
    middle = X.copy()
    middle[:, [0, 8]] = 0
    dump_svmlight_file(middle, y, str(here / "middle.svm"), zero_based=first_index == 0)
    result(f"predict {base}.model middle.svm --scores --to {base}.parquet")
    table = pq.read_table(f"{base}.parquet")
    scores = np.column_stack([table[f"score_{c}"] for c in range(3)])
    np.testing.assert_allclose(
        scores, middle[:, model.features] @ model.coef + model.intercept, rtol=1e-9, atol=1e-12
    )
    (here / "wide.svm").write_text(f"1 3:1 {9 + first_index}:1\n")
    status, _, err = run(f"predict {base}.model wide.svm --to wide.parquet")
    assert status == 1
    assert f"wide.svm:1: feature index {9 + first_index}, but there are 9 features" in err
    status, _, err = run(f"predict {base}.model middle.svm --keep id --to kept.parquet")
    assert (status, "leave out --keep id" in err) == (1, True)
    assert not (here / "wide.parquet").exists()


def test_usage_errors_exit_with_2(run):
    for command in ("train sparse", "predict m.model", "train sparse d.bigmc --to x --alpha much", "fly"):
        status, out, err = run(command)
        assert status == 2
        assert out == ""
        assert err


@pytest.mark.parametrize("command", ["path d.bigmc --to s3://bucket/path", "demo --to s3://bucket/demo"])
def test_folders_of_commands_that_need_a_disk_are_not_addresses(command, run, here):
    status, _, err = run(command)
    assert status == 1
    assert "needs a local disk" in err
    assert not (here / "s3:").exists()
