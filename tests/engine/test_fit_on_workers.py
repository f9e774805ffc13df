"""``bigmc fit`` with workers: the same model as with threads, whatever wins, also beside rows in memory."""

import time
from functools import partial

import numpy as np
import pandas as pd
import pytest

import bigmc
from bigmc.engine import Resources, ThreadEngine
from bigmc.model.calibration import Calibration
from bigmc.options.learners import BoostOptions
from bigmc.store.dataset import Dataset
from bigmc.training.fit import in_time
from bigmc.training.search.winner import Winner

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_rounds_of_boosting")]


def texts(draw):
    """Return short texts of words that labels prefer."""
    labels = draw.integers(0, 3, 300)
    words = [" ".join(f"w{word}" for word in label * 20 + draw.integers(0, 40, 8)) for label in labels]
    return pd.DataFrame({"text": words, "label": [f"kind {label}" for label in labels]}), {
        "text": "text",
        "ngrams": (1, 1),
    }


def table(draw):
    """Return numbers of which two decide together, and one by itself."""
    X = draw.standard_normal((250, 4)).round(3)
    label = (X[:, 0] * X[:, 1] > 0) + 2 * (X[:, 2] + 0.5 * draw.standard_normal(250) > 0)
    return pd.DataFrame(X, columns=[*"abcd"]).assign(label=[f"kind {k}" for k in label]), {}


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize("rows", [table, texts])
def test_fit_gives_the_same_model_on_workers(rows, client, tmp_path):
    frame, options = rows(np.random.default_rng(23))
    frame.to_csv(tmp_path / "t.csv", index=False)
    found = {}
    for name, engine in (("threads", ThreadEngine(1)), ("workers", client)):
        result = bigmc.fit(
            tmp_path / "t.csv", tmp_path / name, label="label", memory_limit="300MB", engine=engine, **options
        )
        found[name] = result, (tmp_path / name).read_bytes()
    (threads, model), (workers, of_workers) = found.values()
    assert threads["test"]["accuracy"] > 0.7
    assert of_workers == model
    for name in ("settings", "test", "baselines", "certificate"):
        assert workers[name] == threads[name], name


def test_a_training_on_some_of_the_rows_is_the_same_on_workers(counts, engine_of, tmp_path, monkeypatch):
    """Boosting without time for all rows draws some of them, which workers cannot see."""
    monkeypatch.setattr(in_time, "FEW_ROWS", 500)
    dataset = Dataset.open(counts)["train"]
    winner = Winner("boost", None, Calibration(), boosting=BoostOptions(n_rounds=3, max_depth=1))
    models = []
    for name, engine in (("threads", ThreadEngine(1)), ("workers", engine_of(2))):
        resources = Resources(engine, 300 * 10**6, ends=time.monotonic())
        models.append(in_time.train_in_time(winner, dataset, resources, tmp_path / name))
        models[-1].save(tmp_path / f"{name}.model")
    assert models[0].params["n_rows"] < 1000
    assert (tmp_path / "threads.model").read_bytes() == (tmp_path / "workers.model").read_bytes()


@pytest.mark.parametrize(
    "kind",
    [
        partial(bigmc.SparseClassifier, alpha=0.01),
        partial(bigmc.MultiBoostClassifier, C=1e2, n_rounds=2, max_depth=1),
        partial(bigmc.MultiBoostClassifier, C=1e2, n_rounds=2, max_depth=2),
        bigmc.MinimaxRiskClassifier,
    ],
)
def test_arrays_stay_in_this_process(kind, client):
    X = np.random.default_rng(25).standard_normal((300, 4))
    y = X[:, 0] + X[:, 1] > 0
    on_threads, on_workers = kind().fit(X, y), kind(engine=client).fit(X, y)
    np.testing.assert_array_equal(on_workers.decision_function(X), on_threads.decision_function(X))


@pytest.mark.exhaustive
def test_texts_stay_in_this_process(client):
    frame, _ = texts(np.random.default_rng(26))
    on_threads, on_workers = (
        bigmc.TextClassifier(engine=engine).fit(list(frame["text"]), list(frame["label"]))
        for engine in (None, client.scheduler.address)
    )
    samples = list(frame["text"][:50])
    np.testing.assert_array_equal(on_workers.predict_proba(samples), on_threads.predict_proba(samples))
