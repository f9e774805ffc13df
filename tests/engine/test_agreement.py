"""One thread, two threads, and clusters of one, two and three workers give the same bytes."""

import csv
import random

import numpy as np
import pytest

import bigmc
from bigmc.engine import ThreadEngine
from bigmc.store.merge import plan_merges

#: A machine of many words, of which each label prefers some.
WORDS = [f"{a}{b}" for a in ("al", "be", "co", "du", "em", "fi") for b in ("ra", "ton", "sil", "mun", "x")]


def group_few(entries):
    """Merge no more than three shards, so that few rows make several."""
    groups = plan_merges(entries)
    return [group[i : i + 3] for group in groups for i in range(0, len(group), 3)]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr("bigmc.ingestion.placing.plan_merges", group_few)
    for module in ("bigmc.ingestion.job", "bigmc.prediction"):
        monkeypatch.setattr(f"{module}.SMALLEST_PART", 1 << 12)
    monkeypatch.setattr("bigmc.ingestion.job.ROWS_PER_PART", 45)
    monkeypatch.setattr("bigmc.prediction.LARGEST_PART", 1 << 14)


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


@pytest.fixture(scope="module")
def one_thread(texts):
    return {}


def test_every_engine_gives_the_same_bytes(texts, engine_of, monkeypatch):
    monkeypatch.chdir(texts)  # relative names mean the same to workers elsewhere
    files, figures = run(texts / "one", ThreadEngine(1))
    assert bigmc.open_dataset(texts / "one" / "t.bigmc").n_shards > 6
    assert "t.bigmc/rejects.parquet" in files
    assert "rays-raw.parquet.rejects.parquet" in files
    engines = {"two": lambda: ThreadEngine(2)}
    engines |= {f"dask {n}": lambda n=n: engine_of(n) for n in (1, 2, 3)}
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


def test_an_estimator_takes_a_client_and_an_address(texts, client, cluster, monkeypatch):
    monkeypatch.chdir(texts)
    dataset = bigmc.ingest("texts.csv", texts / "e.bigmc", text="text", label="label", hash_bits=8)
    options = {"C": 1e2, "n_rounds": 2}
    threads = bigmc.MultiBoostClassifier(**options).fit(dataset["train"])
    for engine in (client, cluster.scheduler_address):
        model = bigmc.MultiBoostClassifier(**options, engine=engine).fit(dataset["train"])
        np.testing.assert_array_equal(model.decision_function(dataset), threads.decision_function(dataset))
        stages = zip(model.staged_predict(dataset), threads.staged_predict(dataset), strict=True)
        assert all((a == b).all() for a, b in stages)
    assert client.status == "running"
