"""One thread, two threads, and a cluster of three workers give the same bytes.

Clusters of one and two workers are compared with threads in `test_lost_workers` and `test_sets_on_workers`.
"""

import csv
import json
import random
import sys

import numpy as np
import pytest

import bigmc
from bigmc import cli
from bigmc.engine import ThreadEngine
from bigmc.store.shards.merge import plan_merges

pytestmark = pytest.mark.slow

#: A machine of many words, of which each label prefers some.
WORDS = [f"{a}{b}" for a in ("al", "be", "co", "du", "em", "fi") for b in ("ra", "ton", "sil", "mun", "x")]


def group_few(entries):
    """Merge no more than three shards, so that few rows make several."""
    groups = plan_merges(entries)
    return [group[i : i + 3] for group in groups for i in range(0, len(group), 3)]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr("bigmc.ingestion.writing.shard_placement.plan_merges", group_few)
    for module in ("bigmc.ingestion.job", "bigmc.inference.raw_input"):
        monkeypatch.setattr(f"{module}.SMALLEST_PART", 1 << 12)
    monkeypatch.setattr("bigmc.ingestion.job.ROWS_PER_PART", 45)
    monkeypatch.setattr("bigmc.inference.raw_input.LARGEST_PART", 1 << 14)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    draw = random.Random(0)
    folder = tmp_path_factory.mktemp("texts")
    with open(folder / "texts.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "size", "label"])
        for row in range(900):
            label = draw.randrange(3)
            mine = WORDS[label * 8 : label * 8 + 12]
            text = " ".join(draw.choice(mine if draw.random() < 0.5 else WORDS) for _ in range(12))
            writer.writerow([text, "bad" if row % 211 == 7 else draw.random(), f"kind {label}"])
    return folder


def run(folder, engine):
    """Do everything in a folder; return every byte of every file by its name, and the figures."""
    folder.mkdir()
    options = {"memory_limit": "300MB", "engine": engine}
    text = bigmc.ingest(
        "texts.csv", folder / "t.bigmc", text="text", dense="size", label="label", hash_bits=10,
        split="train=0.6,test=0.4", on_bad_row="quarantine", **options,
    )  # fmt: skip
    bigmc.ingest(
        "texts.csv", folder / "d.bigmc", dense="size", label="label", standardize=True, fourier=8,
        split="train=0.6,test=0.4", on_bad_row="quarantine", **options,
    )  # fmt: skip
    figures = []
    for name, data, more in (
        ("rays", "t", {"C": 1e3, "n_rounds": 3, "validation_fraction": 0.2}),
        ("stumps", "d", {"C": 1e3, "n_rounds": 3, "family": "stump"}),
        ("trees", "d", {"C": 1e3, "n_rounds": 2, "max_depth": 3, "pool": 5}),
    ):
        bigmc.train("boost", folder / f"{data}.bigmc", folder / f"{name}.model", **more, **options)
    bigmc.train("mrc", folder / "t.bigmc", folder / "mrc.model", k_max=4, **options)
    for name in ("rays", "mrc"):
        model = folder / f"{name}.model"
        figures.append(bigmc.evaluate(model, text, confusion=True, **options))
        bigmc.predict(model, text, folder / f"{name}-stored.parquet", scores=True, **options)
        raw = folder / f"{name}-raw.parquet"
        bigmc.predict(model, "texts.csv", raw, on_bad_row="quarantine", **options)
    names = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(name): (folder / name).read_bytes() for name in names}, figures


def test_every_engine_gives_the_same_bytes(texts, engine_of, monkeypatch):
    monkeypatch.chdir(texts)  # relative names mean the same to workers elsewhere
    files, figures = run(texts / "one", ThreadEngine(1))
    assert bigmc.open_dataset(texts / "one" / "t.bigmc").n_shards > 6
    assert "t.bigmc/rejects.parquet" in files
    assert "rays-raw.parquet.rejects.parquet" in files
    engines = {"two": lambda: ThreadEngine(2), "three workers": lambda: engine_of(3)}
    for name, make in engines.items():
        engine = make()
        other_files, other_figures = run(texts / name, engine)
        assert other_files.keys() == files.keys(), name
        differing = [file for file, content in files.items() if other_files[file] != content]
        assert not differing, name
        assert other_figures == figures
        if name != "two":
            assert engine.usage()["tasks"] > 100
            assert engine.usage()["bytes_moved"] > 10_000


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_estimator_takes_a_client_and_an_address(texts, client, cluster, monkeypatch):
    monkeypatch.chdir(texts)
    dataset = bigmc.ingest("texts.csv", texts / "e.bigmc", text="text", label="label", hash_bits=8)
    options = {"C": 1e2, "n_rounds": 2, "max_depth": 1}
    threads = bigmc.MultiBoostClassifier(**options).fit(dataset["train"])
    for engine in (client, cluster.scheduler_address):
        model = bigmc.MultiBoostClassifier(**options, engine=engine).fit(dataset["train"])
        np.testing.assert_array_equal(model.decision_function(dataset), threads.decision_function(dataset))
        stages = zip(model.staged_predict(dataset), threads.staged_predict(dataset), strict=True)
        assert all((a == b).all() for a, b in stages)
    assert client.status == "running"


# Kernels of a loss take long to compile: `test_sparse_passes` has the other losses. What is sent to the
# workers is the passes over the samples, or drawing a sample alone.
@pytest.mark.exhaustive(keep=4)
@pytest.mark.parametrize(
    ("loss", "penalty", "limit", "more", "sent"),
    [
        ("squared_hinge", "l1/l2", "3MB", {}, "passes"),  # out of core: a corrected sample
        ("squared_hinge", "l1/l2", "100MB", {}, "nothing"),  # in memory
        ("log_loss", "l1", "3MB", {"class_weight": "balanced", "ridge": 1e-3}, "passes"),
        ("log_loss", "l1/l2", "3MB", {"alpha": 1e-4}, "sample"),  # more features: chunks of samples
        ("log_loss", "sparse_group", "3MB", {"fit_intercept": True}, "passes"),
        ("log_loss", "l1/linf", "3MB", {}, "passes"),
    ],
)
def test_sparse_training_gives_the_same_models(
    counts, engine_of, tiny_limits, tmp_path, loss, penalty, limit, more, sent
):
    passes = 4 if sent == "passes" else 2
    options = {"alpha": 0.02, "max_passes": passes, "memory_limit": limit} | more
    models = {}
    for name, engine in (("one", ThreadEngine(1)), ("two", ThreadEngine(2)), ("three workers", engine_of(3))):
        before, to = engine.usage(), tmp_path / f"{name}.model"
        bigmc.train("sparse", counts, to, loss=loss, penalty=penalty, engine=engine, **options)
        models[name] = to.read_bytes()
    tasks = engine.usage()["tasks"] - before["tasks"]
    drawing = 0 if sent == "nothing" else 1 + bigmc.open_dataset(counts)["train"].n_shards
    assert tasks == drawing if sent != "passes" else tasks > 2 * drawing
    assert models["two"] == models["one"]
    assert models["three workers"] == models["one"]


@pytest.mark.exhaustive
def test_the_sparse_commands_and_the_estimator(counts, client, tiny_limits, tmp_path, monkeypatch, capsys):
    """``train sparse`` and ``path`` with the file of a scheduler, ``fit`` with a client: as on threads."""
    file = tmp_path / "s.json"
    file.write_text(json.dumps({"address": client.scheduler.address}))

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["bigmc", *map(str, words), "--memory", "3MB", "--json"])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        out, err = capsys.readouterr()
        assert not exit_.value.code, err
        return json.loads(out)

    for name, engine in (("threads", ("--threads", 1)), ("workers", ("--scheduler-file", file))):
        train = run("train", "sparse", counts, "--to", tmp_path / f"{name}.model", "--alpha", 0.02, *engine)
        path = run("path", counts, "--to", tmp_path / name, "--alphas", 3, "--alpha-ratio", 0.3, *engine)
    assert min(train["tasks"], path["tasks"]) > 0
    assert (tmp_path / "threads.model").read_bytes() == (tmp_path / "workers.model").read_bytes()
    models = sorted(file.name for file in (tmp_path / "threads").glob("*.model"))
    assert models[:3] == ["000.model", "001.model", "002.model"]  # and more, until validation has turned
    assert models[-1] == "best.model"
    assert models == sorted(file.name for file in (tmp_path / "workers").glob("*.model"))
    for model in models:
        assert (tmp_path / "threads" / model).read_bytes() == (tmp_path / "workers" / model).read_bytes()
    options = {"alpha": 0.02, "memory_limit": "3MB"}
    samples = bigmc.open_dataset(counts)["train"]
    fitted = bigmc.SparseClassifier(**options, engine=client).fit(samples)
    saved = bigmc.load_model(tmp_path / "threads.model")
    np.testing.assert_array_equal(fitted.coef_.toarray(), saved.coef_.toarray())
    assert fitted.certificate_ == saved.certificate_
