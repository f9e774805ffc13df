"""What version 0.1.0 wrote: it opens, scores and trains as it did then.

`tests/data/written_by_0.1.0.zip` holds two CSV files, what that version made of them with these commands, and
the predictions of its models for the same files::

    bigmc ingest texts.csv --to texts.bigmc --text text --categorical colour --numeric size --label label \
        --weighting tfidf --hash-bits 10
    bigmc ingest numbers.csv --to numbers.bigmc --dense x0 … --dense x5 --label label
    bigmc train sparse texts.bigmc --to sparse.model --alpha 1e-3 --tol 1e-6
    bigmc train sparse texts.bigmc --to log.model --alpha 1e-3 --loss log_loss --penalty l1 --fit-intercept \
        --tol 1e-5
    bigmc train boost numbers.bigmc --to boost.model --rounds 8 --max-depth 1
    bigmc train boost numbers.bigmc --to trees.model --rounds 4 --max-depth 3
    bigmc train mrc numbers.bigmc --to minimax.model --lambda0 0.05
    bigmc predict sparse.model texts.csv --scores --to sparse.parquet     # and so for the others
"""

import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import zarr

import bigmc
from bigmc.errors import DataError

pytestmark = pytest.mark.slow

ARCHIVE = Path(__file__).parent / "data" / "written_by_0.1.0.zip"
MODELS = {"sparse": "texts", "log": "texts", "boost": "numbers", "trees": "numbers", "minimax": "numbers"}


@pytest.fixture(scope="module")
def older(tmp_path_factory):
    folder = tmp_path_factory.mktemp("older")
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(folder)
    return folder


@pytest.mark.parametrize("name", MODELS)
def test_a_model_predicts_alike(older, tmp_path, name):
    bigmc.predict(
        older / f"{name}.model", older / f"{MODELS[name]}.csv", tmp_path / "now.parquet", scores=True
    )
    now, then = pq.read_table(tmp_path / "now.parquet"), pq.read_table(older / f"{name}.parquet")
    assert now.column_names == then.column_names
    for column in then.column_names:
        if then.schema.field(column).type in ("float", "double"):
            np.testing.assert_allclose(
                now[column], then[column], rtol=1e-5, atol=1e-6
            )  # other processors round
        else:
            assert now[column].to_pylist() == then[column].to_pylist()


def test_a_model_without_its_label_column_asks_for_it(older):
    rows = older / "texts.csv"
    with pytest.raises(DataError, match="name it with --label"):
        bigmc.evaluate(older / "sparse.model", rows)
    predicted = bigmc.load_model(older / "sparse.model").predict(rows)
    truth = pd.read_csv(rows)["label"]
    expected = np.mean(predicted == truth)
    assert bigmc.evaluate(older / "sparse.model", rows, label="label")["accuracy"] == expected


@pytest.mark.parametrize("name", ["texts", "numbers"])
def test_a_dataset_is_sound_and_has_its_rows(older, name):
    dataset = bigmc.open_dataset(older / f"{name}.bigmc")
    n_rows = len((older / f"{name}.csv").read_text().splitlines()) - 1
    assert sum(dataset[split].n_samples for split in ("train", "test")) == n_rows


@pytest.mark.parametrize(
    ("name", "options"),
    {
        "texts": {
            "text": "text",
            "categorical": "colour",
            "numeric": "size",
            "weighting": "tfidf",
            "hash_bits": 10,
            "label": "label",
        },
        "numbers": {"dense": [f"x{j}" for j in range(6)], "label": "label"},
    }.items(),
)
def test_the_same_source_gives_the_same_arrays(older, tmp_path, name, options):
    """The bytes differ: version 2 of the store packs chunks otherwise."""
    bigmc.ingest(older / f"{name}.csv", tmp_path / "now.bigmc", **options)
    shards = older / f"{name}.bigmc" / "shards"
    folders = sorted(path.parent for path in shards.rglob("c"))
    assert folders
    for folder in folders:
        then = zarr.open_array(folder, mode="r")
        now = zarr.open_array(tmp_path / "now.bigmc" / "shards" / folder.relative_to(shards), mode="r")
        assert now.dtype == then.dtype
        np.testing.assert_array_equal(now[...], then[...])


@pytest.mark.parametrize(
    ("name", "learner", "options"),
    [
        ("sparse", "sparse", {"alpha": 1e-3, "tol": 1e-6}),
        (
            "log",
            "sparse",
            {"alpha": 1e-3, "loss": "log_loss", "penalty": "l1", "fit_intercept": True, "tol": 1e-5},
        ),
        ("boost", "boost", {"n_rounds": 8, "max_depth": 1}),
        ("trees", "boost", {"n_rounds": 4, "max_depth": 3}),
        ("minimax", "mrc", {"lambda0": 0.05}),
    ],
)
def test_training_reaches_the_same_optimum(older, tmp_path, name, learner, options):
    then = bigmc.load_model(older / f"{name}.model")
    every = {"loss": "squared_hinge", "ridge": 0.0, "fit_intercept": False} if learner == "sparse" else {}
    bigmc.train(learner, older / f"{MODELS[name]}.bigmc", tmp_path / "now.model", **{**every, **options})
    now = bigmc.load_model(tmp_path / "now.model")
    if learner == "boost":  # the columns were cut at quantiles then, now at round numbers near them
        assert now.objective_ == pytest.approx(then.objective_, rel=0.05)
        return
    lower = max(then.certificate_.lower, now.certificate_.lower)
    upper = min(then.certificate_.upper, now.certificate_.upper)
    assert lower <= upper + 1e-6 * abs(upper)
