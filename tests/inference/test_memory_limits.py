"""A memory limit that is too small is refused with one that works, and is nearly the least that does."""

import gzip
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigmc import api
from bigmc.budget import MemoryLimitError
from bigmc.engine import ThreadEngine
from bigmc.inference import raw_input
from bigmc.inference.evaluation.labelled_files import LabelledFiles
from bigmc.model import LinearModel
from bigmc.store import snapshot
from bigmc.store.dataset import Dataset


def works_at_once(run, small):
    with pytest.raises(MemoryLimitError) as refused:
        run(small)
    needed = int(re.search(r"give --memory (\d+)MB", str(refused.value))[1])
    with pytest.raises(MemoryLimitError):
        run(int(needed / 1.05))
    return run(needed)


def limits(megabytes, n_threads=2):
    return {"memory_limit": f"{megabytes}MB", "engine": ThreadEngine(n_threads)}


@pytest.mark.parametrize("small", [32, 40])
@pytest.mark.parametrize(
    ("n_classes", "n_features", "n_rows"), [(50, 100, 200), (2000, 3000, 500), (3, 10, 60_000)]
)
def test_evaluation(n_classes, n_features, n_rows, small):
    rng = np.random.default_rng(0)
    coef = rng.standard_normal((n_features, n_classes))
    model = LinearModel(
        "sparse", np.arange(n_classes), n_features, np.arange(n_features), coef, np.zeros(n_classes)
    )
    X = np.zeros((n_rows, n_features), np.float32)
    X[np.arange(n_rows), rng.integers(0, n_features, n_rows)] = 1.0
    dataset = Dataset.from_arrays(X, rng.integers(0, n_classes, n_rows))
    found = works_at_once(lambda mb: api.evaluate(model, dataset, split="all", **limits(mb)), small)
    assert found["n_samples"] == n_rows


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A Parquet file of 1,500 columns in 12 row groups, and a model of them."""
    folder = tmp_path_factory.mktemp("wide")
    rng = np.random.default_rng(0)
    names = [f"x{j}" for j in range(1500)]
    table = pa.table({name: rng.standard_normal(48) for name in names} | {"label": list("ab") * 24})
    pq.write_table(table, folder / "t.parquet", row_group_size=4)
    api.ingest(
        folder / "t.parquet", folder / "d.bigmc", dense=names, label="label", split={"train": 1.0},
        memory_limit="200MB",
    )  # fmt: skip
    api.train("sparse", folder / "d.bigmc", folder / "m.model", alpha=1e-3, max_passes=1)
    return folder


@pytest.mark.exhaustive
@pytest.mark.parametrize("small", [32, 48])
def test_prediction_of_a_file_with_a_large_footer(wide, small):
    to = wide / f"p{small}.parquet"
    found = works_at_once(
        lambda mb: api.predict(wide / "m.model", wide / "t.parquet", to, **limits(mb)), small
    )
    assert found["n_samples"] == 48


def test_rows_of_many_numbers_are_read_several_at_a_time(wide, monkeypatch):
    """Reading a batch of so many columns costs much whatever its rows: one by one they took minutes."""
    plain, sizes = raw_input.read, []

    def read(*args, **kwargs):
        for batch in plain(*args, **kwargs):
            sizes.append(batch.n_rows)
            yield batch

    monkeypatch.setattr(raw_input, "read", read)
    api.predict(wide / "m.model", wide / "t.parquet", wide / "p.parquet", **limits(64, 1))
    assert sum(sizes) == 48
    assert len(sizes) <= 12


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_large_row_group_does_not_have_all_its_scores_in_memory(command, tmp_path, monkeypatch):
    words = [f"w{c:02}" for c in range(60)]
    few = pa.table({"text": words * 4, "label": words * 4})
    api.ingest(few, tmp_path / "d.bigmc", text="text", label="label", split={"train": 1.0})
    api.train("sparse", tmp_path / "d.bigmc", tmp_path / "m.model", alpha=1e-3, max_passes=5)
    n_rows = 60_000  # 29 MB of scores
    rows = pa.table({"text": words * 1000, "label": words * 1000})
    pq.write_table(rows, tmp_path / "t.parquet", row_group_size=n_rows)
    most = []
    if command == "predict":
        to = tmp_path / "p.parquet"
        api.predict(tmp_path / "m.model", tmp_path / "t.parquet", to, scores=True, **limits(44))
        assert pq.read_table(to)["predicted_label"].to_pylist() == rows["label"].to_pylist()
        groups = pq.ParquetFile(to).metadata
        most = [groups.row_group(i).num_rows for i in range(groups.num_row_groups)]
    else:
        part = LabelledFiles.part
        monkeypatch.setattr(
            LabelledFiles, "part", lambda *of: most.append(len(part(*of).all_scores)) or part(*of)
        )
        found = api.evaluate(tmp_path / "m.model", tmp_path / "t.parquet", **limits(44))
        assert found["accuracy"] == 1
    assert sum(most) == n_rows
    assert max(most) < n_rows // 3


def test_a_compressed_file_does_not_have_all_its_scores_in_memory(tmp_path):
    words = [f"w{c:02}" for c in range(60)]
    few = pa.table({"text": words * 4, "label": words * 4})
    api.ingest(few, tmp_path / "d.bigmc", text="text", label="label", split={"train": 1.0})
    api.train("sparse", tmp_path / "d.bigmc", tmp_path / "m.model", alpha=1e-3, max_passes=5)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(("text\n" + "\n".join(words * 1000)).encode()))
    api.predict(
        tmp_path / "m.model", tmp_path / "t.csv.gz", tmp_path / "p.parquet", scores=True, **limits(44)
    )
    assert pq.read_table(tmp_path / "p.parquet")["predicted_label"].to_pylist() == words * 1000
    groups = pq.ParquetFile(tmp_path / "p.parquet").metadata
    assert max(groups.row_group(i).num_rows for i in range(groups.num_row_groups)) < 20_000


def test_prediction_with_every_score_of_many_classes(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.array([f"class {c}" for c in range(1000)])
    model = LinearModel("sparse", labels, 20, np.arange(20), rng.standard_normal((20, 1000)), np.zeros(1000))
    dataset = Dataset.from_arrays(rng.standard_normal((4000, 20)))

    def run(megabytes):
        return api.predict(
            model, dataset, tmp_path / "p.parquet", scores=True, overwrite=True, **limits(megabytes)
        )

    assert works_at_once(run, 64)["n_samples"] == 4000


def test_what_does_not_fit_is_refused_before_labels_are_read(wide, tmp_path, monkeypatch):
    (tmp_path / "t.csv").write_text(
        "text,label\n" + "".join(f"w{i % 7},label {i % 3000}\n" for i in range(6000))
    )
    api.ingest(tmp_path / "t.csv", tmp_path / "d.bigmc", text="text", label="label", hash_bits=21)
    read = []
    monkeypatch.setattr(snapshot, "read_classes", lambda *arguments: read.append(arguments))
    with pytest.raises(MemoryLimitError, match="entries and norms per feature"):
        api.train("sparse", tmp_path / "d.bigmc", tmp_path / "m.model", alpha=1e-3, memory_limit="32MB")
    assert not read
