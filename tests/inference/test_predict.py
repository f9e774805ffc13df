"""Prediction in little memory, of many classes, by many workers: always the same file."""

import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

from bigmc.budget import MemoryLimitError
from bigmc.engine import Resources, ThreadEngine
from bigmc.inference.dataset_input import DatasetInput
from bigmc.inference.evaluation.evaluate import evaluate
from bigmc.inference.evaluation.labelled import LabelledDataset
from bigmc.inference.memory import FIXED_COST, SMALLEST_SCRATCH, divide
from bigmc.inference.predict import PredictionJob
from bigmc.inference.raw_input import RawInput
from bigmc.inference.writers import CsvWriter
from bigmc.ingestion.parts.scan import expand_sources
from bigmc.model import LinearModel, ModelSource
from bigmc.options.inference import EvaluateOptions, PredictOptions
from bigmc.store.dataset import Dataset
from bigmc.store.files.outputs import IfExists, Output

N_CLASSES = 40


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, (500, 30)).astype(float)
    features = np.arange(0, 30, 2)
    labels = np.array([f"class {c:02}" for c in range(N_CLASSES)])
    coef = rng.normal(size=(15, N_CLASSES))
    return X, LinearModel("sparse", labels, 30, features, coef, rng.normal(size=N_CLASSES))


def predict(model, to, source, workers=2, limit=64_000_000, scores=True):
    options, resources = PredictOptions(scores=scores), Resources(ThreadEngine(workers), limit)
    job = PredictionJob(ModelSource.of(model), Output.at(to), options, resources)
    rows = DatasetInput(source) if isinstance(source, Dataset) else RawInput(expand_sources(source))
    job.run(rows, IfExists.REPLACE)
    return pq.read_table(to)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("limit", [45_000_000, 500_000_000])
def test_workers_and_memory_change_nothing(workers, limit, data, tmp_path):
    X, model = data
    scores = X[:, model.features] @ model.coef + model.intercept
    best = model.classes[np.argmax(scores, axis=1)].tolist()
    dataset = Dataset.from_arrays(X, shard_rows=64)
    for source in (X, dataset):
        table = predict(model, tmp_path / "p", source, workers, limit)
        assert table["row_id"].to_pylist() == list(range(500))
        assert table["predicted_label"].to_pylist() == best
        found = np.column_stack([table[f"score_{label}"] for label in model.classes])
        np.testing.assert_allclose(found, scores, rtol=1e-9, atol=1e-9)
        labels = predict(model, tmp_path / "q", source, workers, limit, scores=False)
        assert labels.equals(table.select(["row_id", "predicted_label"]))


def test_workers_change_no_byte_where_memory_cuts_parts(data, tmp_path):
    X = np.random.default_rng(1).integers(0, 4, (24_000, 30)).astype(float)
    written = set()
    for workers in (1, 2, 5):
        predict(data[1], tmp_path / "p", X, workers, limit=64_000_000)
        written.add((tmp_path / "p").read_bytes())
    assert len(written) == 1
    groups = pq.ParquetFile(tmp_path / "p").metadata
    assert max(groups.row_group(i).num_rows for i in range(groups.num_row_groups)) < 12_000


def test_results_that_do_not_fit_are_refused_with_figures(data, tmp_path):
    X, model = data
    dataset = Dataset.from_arrays(np.tile(X, (40, 1)))
    with pytest.raises(MemoryLimitError, match=r"results of the parts .* give --memory") as refused:
        predict(model, tmp_path / "p", dataset, limit=46_000_000)
    needed = int(str(refused.value).rpartition("--memory ")[2].partition("MB")[0]) * 10**6
    assert predict(model, tmp_path / "p", dataset, limit=needed).num_rows == 20_000
    assert predict(model, tmp_path / "q", dataset, limit=46_000_000, scores=False).num_rows == 20_000


class Elsewhere(ThreadEngine):
    """Threads that count as processes with a memory of their own."""

    shares_memory = False


@pytest.mark.slow
@pytest.mark.parametrize("step", ["predict", "evaluate"])
@pytest.mark.parametrize("engine", [ThreadEngine(2), Elsewhere(2)], ids=["threads", "processes"])
def test_the_limit_that_a_refusal_names_works_and_is_the_least(step, engine, data, tmp_path):
    model = data[1]
    wide = LinearModel(
        "sparse", model.classes, 60_000, np.arange(60_000), np.ones((60_000, N_CLASSES)), model.intercept
    )
    rows = scipy.sparse.csr_array(([1.0], ([0], [7])), shape=(2000, 60_000))
    dataset = Dataset.from_arrays(rows, model.classes[np.arange(2000) % N_CLASSES])

    def run(limit: int) -> None:
        resources = Resources(engine, limit)
        if step == "evaluate":
            evaluate(wide, LabelledDataset(dataset), EvaluateOptions(), resources)
            return
        job = PredictionJob(ModelSource.of(wide), Output.at(tmp_path / "p"), PredictOptions(), resources)
        job.run(DatasetInput(dataset), IfExists.REPLACE)

    with pytest.raises(MemoryLimitError) as refused:
        run(40_000_000)
    least = int(str(refused.value).rpartition("--memory ")[2].partition("MB")[0]) * 10**6
    run(least)
    with pytest.raises(MemoryLimitError):
        run(int(least / 1.05))


def test_the_limit_is_shared_among_workers(data):
    model = data[1]
    fixed = FIXED_COST + model.kept_bytes
    assert divide(model, fixed + SMALLEST_SCRATCH, 8, 0, "x") == (1, SMALLEST_SCRATCH)
    assert divide(model, fixed + 5 * SMALLEST_SCRATCH, 3, 0, "x") == (3, 5 * SMALLEST_SCRATCH // 3)
    workers, room = divide(model, fixed + 20 * SMALLEST_SCRATCH, 8, SMALLEST_SCRATCH, "x")
    assert room >= SMALLEST_SCRATCH
    assert workers * room + (2 * workers + 1) * SMALLEST_SCRATCH <= 20 * SMALLEST_SCRATCH
    with pytest.raises(MemoryLimitError, match="the model"):
        divide(model, fixed, 8, 0, "x")


@pytest.mark.parametrize("labels", [[2.0, 2.5], [False, True], [2, 10], ["a", "true"]])
def test_labels_look_in_csv_as_in_names_of_columns(labels):
    column = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int8()), labels)
    table = pa.table({"predicted_label": column, f"probability_{labels[1]}": [0.5, 1.0, 0.0]})
    file = io.BytesIO()
    with CsvWriter(file, table.schema) as writer:
        writer.write(table)
    read = pd.read_csv(io.BytesIO(file.getvalue()), dtype=str)
    said = read["predicted_label"].tolist()
    assert said == [str(labels[k]) for k in (1, 0, 1)]
    assert read.columns[1] == f"probability_{said[0]}"
    assert b'"2"' not in file.getvalue()  # integers are written as numbers
