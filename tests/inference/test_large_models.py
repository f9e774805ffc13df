"""A model larger than the memory limit is refused before it is read, and takes what was planned."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from inference.test_memory_limits import limits, works_at_once

from bigmc import api
from bigmc.budget import MemoryLimitError
from bigmc.errors import ModelError
from bigmc.model import (
    BoostedModel,
    LinearModel,
    MinimaxModel,
    SumModel,
    Trees,
    load_model,
    outline_of_file,
    source,
)
from bigmc.model.archive import read_archive, write_archive
from bigmc.model.rounding import multiples_of, steps_of, weights_of
from bigmc.store.dataset import Dataset

N_FEATURES = 1500
KINDS = ("dense", "sparse", "rounded", "named", "sets", "minimax", "boosted", "sum")


def linear(kind):
    rng = np.random.default_rng(0)
    n_classes = 4 if kind == "named" else 4500
    coef = rng.standard_normal((N_FEATURES, n_classes)).astype(np.float32)
    if kind == "sparse":
        coef[rng.random(coef.shape) > 0.3] = 0
    options = {}
    if kind == "rounded":
        options["step"] = steps_of(np.abs(coef).max(axis=0))
        coef = weights_of(multiples_of(coef, options["step"]), options["step"])
    options |= {"phi": 0.1, "lambda0": 0.2, "stopped": "tol"} if kind == "minimax" else {}
    options |= {"label_threshold": 0.5} if kind == "sets" else {}
    if kind == "named":
        long = [f"word {i} " * 200 for i in range(8 * N_FEATURES)]
        bucket = np.repeat(np.arange(N_FEATURES), 8)
        columns = {"bucket": bucket, "name": long, "sign": 1 - 2 * (bucket % 2), "count": bucket}
        options["names"] = pa.table(columns)
    labels = np.arange(n_classes) if kind == "sets" else np.array([f"class {c}" for c in range(n_classes)])
    type = MinimaxModel if kind == "minimax" else LinearModel
    name = "mrc" if kind == "minimax" else "sparse"
    return type(name, labels, N_FEATURES, np.arange(N_FEATURES), coef, np.zeros(n_classes), **options)


def boosted(n_learners=60_000, n_edges=20):
    rng = np.random.default_rng(0)
    shape = n_learners, 15
    node_feature = rng.integers(-1, N_FEATURES, shape).astype(np.int32)
    trees = Trees(
        features=np.arange(N_FEATURES),
        edge_starts=np.arange(N_FEATURES + 1) * n_edges,
        edges=np.sort(rng.standard_normal((N_FEATURES, n_edges)), axis=1).ravel(),
        node_feature=node_feature,
        node_cut=np.where(node_feature < 0, 0, rng.integers(0, n_edges, shape)).astype(np.int16),
        missing_below=rng.random(shape) > 0.5,
        leaf=rng.integers(-1, 2, (n_learners, 16)).astype(np.int8),
        learner_class=rng.integers(0, 5, n_learners),
    )
    entries = np.arange(n_learners, dtype=np.int32)
    ends, weights = np.array([0, n_learners]), rng.random(n_learners)
    return BoostedModel("boost", np.arange(5), N_FEATURES, trees, ends, entries, weights, 1, 1.0)


def made(kind):
    if kind == "sum":
        return SumModel.of([linear("rounded"), linear("sparse")], np.array([0.5, 2.0]))
    return boosted() if kind == "boosted" else linear(kind)


@pytest.fixture(scope="module", params=KINDS)
def saved(request, tmp_path_factory):
    """A model of more than 24 MB, which cannot be used in 64 MB, and a dataset with some of its labels."""
    folder = tmp_path_factory.mktemp(request.param)
    model = made(request.param)
    model.save(folder / "m.model")
    rng = np.random.default_rng(0)
    X = rng.random((60, N_FEATURES)) * (rng.random((60, N_FEATURES)) < 0.01)
    # Sets of labels are given as ones in a matrix, whose columns are the classes 0, 1 and 2.
    labels = np.tile(np.eye(3, dtype=int), (20, 1)) if request.param == "sets" else [*model.classes[:3]] * 20
    return folder / "m.model", Dataset.from_arrays(X, labels), model.nbytes


def traced_peak(run):
    """Return the most bytes that NumPy and Python held beside what was there."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.exhaustive(keep=3)
def test_what_is_planned_is_what_opening_takes(saved):
    path, _, n_bytes = saved
    assert outline_of_file(path).nbytes == n_bytes > 24_000_000
    peak = traced_peak(lambda: load_model(path).scorer)
    assert peak < 1.02 * n_bytes + 3_000_000


@pytest.mark.exhaustive(keep=3)
def test_a_refusal_reads_no_array_and_names_the_least_limit(saved, tmp_path, monkeypatch, request):
    """Of a prediction, and of one of the other commands, which ask the same way."""
    path, dataset, n_bytes = saved
    all_of = {"dataset": dataset, "split": "all"}
    others = (
        lambda mb: api.evaluate(path, dataset, split="all", **limits(mb)),
        lambda mb: api.report(path, tmp_path / "r.html", **all_of, **limits(mb)),
        lambda mb: api.export(path, tmp_path / "m.md", **all_of, memory_limit=f"{mb}MB"),
    )
    runs = [
        lambda mb: api.predict(path, dataset, tmp_path / "p.parquet", **limits(mb)),
        others[KINDS.index(request.node.callspec.params["saved"]) % len(others)],
    ]
    for run in runs:
        done = works_at_once(run, 64)
        assert done.get("n_samples") == 60 or done["bytes"] > 0
    (tmp_path / "p.parquet").unlink()
    monkeypatch.setattr(source, "load_model", pytest.fail)
    for run in runs:

        def refused(run=run):
            with pytest.raises(MemoryLimitError):
                run(int(n_bytes / 1e6) + 30)

        refused()  # what is imported and cached at first use
        assert traced_peak(refused) < 3_000_000


def test_a_refusal_leaves_no_work_folder(saved, tmp_path):
    path, dataset, _ = saved
    with pytest.raises(MemoryLimitError):
        api.predict(path, dataset, tmp_path / "p.parquet", **limits(40))
    with pytest.raises(MemoryLimitError):
        api.report(path, tmp_path / "r.html", dataset=dataset, split="all", **limits(40))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("array", "change"),
    [
        ("names_ends", lambda ends: ends[::-1].copy()),
        ("names_ends", lambda ends: ends[:-1]),
        ("names_text", lambda text: text + np.uint8(200)),
        ("coef_ends", lambda ends: ends[:-1]),
        ("coef_ends", lambda ends: ends[::-1].copy()),
        ("coef_values", lambda values: values[:-1]),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(array, change, tmp_path):
    coef = np.zeros((30, 20), np.float32)
    coef[np.arange(30), np.arange(30) % 20] = 1
    columns = {"bucket": range(30), "name": [f"word {i}" for i in range(30)], "sign": [1] * 30}
    names = pa.table({**columns, "count": range(30)})
    model = LinearModel("sparse", np.arange(20), 30, np.arange(30), coef, np.zeros(20), names=names)
    model.save(tmp_path / "m.model")
    header, arrays = read_archive(tmp_path / "m.model")
    write_archive(tmp_path / "m.model", header, arrays | {array: change(arrays[array])})
    with pytest.raises(ModelError, match="train again"):
        load_model(tmp_path / "m.model")
