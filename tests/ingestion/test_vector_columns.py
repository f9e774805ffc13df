"""Columns of lists of numbers: as the same numbers in columns of their own, whatever holds them."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from read_back import read_back, stored

import bigmc
from bigmc.errors import BigmcError, DataError
from bigmc.store.dataset import Dataset

N, WIDTH = 160, 5
RNG = np.random.default_rng(20261130)
VALUES = RNG.normal(size=(N, WIDTH))
LABELS = np.where(VALUES[:, 1] > 0, "up", "down")
COLUMNS = [f"v.{place}" for place in range(WIDTH)]
DOUBLE = pa.float64()


def json_lines(path, values=VALUES, labels=LABELS):
    rows = zip([list(row) for row in values], labels, strict=True)
    path.write_text("".join(json.dumps({"v": row, "y": str(label)}) + "\n" for row, label in rows))
    return path


def as_parquet(column, path):
    pq.write_table(pa.table({"v": column, "y": LABELS}), path)
    return path


def as_csv(texts, path):
    pd.DataFrame({"v": texts, "y": LABELS}).to_csv(path, index=False)
    return path


LISTS = VALUES.tolist()
SOURCES = {
    "list": lambda folder: as_parquet(pa.array(LISTS), folder / "v.parquet"),
    "large_list": lambda folder: as_parquet(
        pa.array(LISTS, pa.large_list(pa.float64())), folder / "v.parquet"
    ),
    "fixed": lambda folder: as_parquet(pa.array(LISTS, pa.list_(pa.float64(), WIDTH)), folder / "v.parquet"),
    "jsonl": lambda folder: json_lines(folder / "v.jsonl"),
    "csv": lambda folder: as_csv([str(row) for row in LISTS], folder / "v.csv"),
    "csv of NumPy": lambda folder: as_csv(
        [np.array2string(row, floatmode="unique", separator=" ", max_line_width=40) for row in VALUES],
        folder / "v.csv",
    ),
    "pandas": lambda folder: pd.DataFrame({"v": list(VALUES), "y": LABELS}),
    "polars array": lambda folder: pl.DataFrame({"v": VALUES, "y": LABELS}),
    "polars list": lambda folder: pl.DataFrame({"v": LISTS, "y": LABELS}),
    "dicts": lambda folder: iter({"v": row, "y": str(y)} for row, y in zip(LISTS, LABELS, strict=True)),
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("columns")
    table = pa.table(dict(zip(COLUMNS, VALUES.T, strict=True)) | {"y": LABELS})
    bigmc.ingest(table, to=folder / "d.bigmc", label="y", dense=COLUMNS)
    return stored(folder / "d.bigmc")


@pytest.mark.parametrize("source", SOURCES)
def test_the_dataset_is_that_of_columns_of_numbers(source, expected, tmp_path):
    bigmc.ingest(SOURCES[source](tmp_path), to=tmp_path / "d.bigmc", label="y", vector="v")
    assert stored(tmp_path / "d.bigmc") == expected


def test_files_may_hold_singles_doubles_or_integers(tmp_path):
    whole = RNG.integers(-9, 9, (N, WIDTH))
    folder = tmp_path / "in"
    folder.mkdir()
    for k, kind in enumerate((pa.float32(), pa.int16(), pa.float64(), pa.uint8())):
        rows = np.abs(whole[k::4]).tolist()
        pq.write_table(
            pa.table({"v": pa.array(rows, pa.list_(kind)), "y": LABELS[k::4]}), folder / f"{k}.parquet"
        )
    rows = np.concatenate([np.abs(whole[k::4]) for k in range(4)])
    labels = np.concatenate([LABELS[k::4] for k in range(4)])
    bigmc.ingest(folder, to=tmp_path / "many.bigmc", label="y", vector="v")
    table = pa.table(dict(zip(COLUMNS, rows.T.astype(float), strict=True)) | {"y": labels})
    bigmc.ingest(table, to=tmp_path / "one.bigmc", label="y", dense=COLUMNS)
    assert stored(tmp_path / "many.bigmc") == stored(tmp_path / "one.bigmc")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([1.0, 2.0], "has 2 numbers, where 5 are expected"),
        ([], "has 0 numbers, where 5 are expected"),
        ([1.0, None, 0.0, 0.0, 0.0], "has a missing number"),
        (None, "is missing"),
        ([1.0, float("inf"), 0.0, 0.0, 0.0], "has an infinite number"),
    ],
)
def test_a_bad_list_is_refused_or_set_aside_with_its_row(row, reason, tmp_path):
    rows = [*LISTS[:30], row, *LISTS[31:]]
    pq.write_table(
        pa.table({"v": pa.array(rows, pa.list_(pa.float64())), "y": LABELS}), tmp_path / "v.parquet"
    )
    with pytest.raises(DataError, match=f"v.parquet.*row 30.*column 'v' {reason}"):
        bigmc.ingest(tmp_path / "v.parquet", to=tmp_path / "d.bigmc", label="y", vector="v")
    aside = bigmc.ingest(
        tmp_path / "v.parquet", to=tmp_path / "q.bigmc", label="y", vector="v", on_bad_row="quarantine"
    )
    assert aside.n_samples == N - 1
    (reject,) = pq.read_table(next((tmp_path / "q.bigmc").rglob("rejects*.parquet"))).to_pylist()
    assert reason in reject["reason"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [("[0.1 0.2 ... 0.3]", r"'\[0.1 0.2 ... 0.3\]'"), ("nothing", "'nothing'"), ("[1, x]", r"'\[1, x\]'")],
)
def test_a_text_that_is_no_list_is_quoted(text, shown, tmp_path):
    as_csv([*map(str, LISTS[:-1]), text], tmp_path / "v.csv")
    with pytest.raises(DataError, match=f"column 'v' is not a list of exact numbers: {shown}"):
        bigmc.ingest(tmp_path / "v.csv", to=tmp_path / "d.bigmc", label="y", vector="v")


def test_an_integer_that_is_not_exact_is_refused(tmp_path):
    rows = [[1, 2**53 + 1] if k == 7 else [1, k] for k in range(N)]
    as_parquet(pa.array(rows, pa.list_(pa.int64())), tmp_path / "v.parquet")
    with pytest.raises(DataError, match=r"row 7.*9007199254740993"):
        bigmc.ingest(tmp_path / "v.parquet", to=tmp_path / "d.bigmc", label="y", vector="v")


def test_lists_longer_than_features_can_be_named_are_refused(tmp_path):
    pq.write_table(pa.table({"v": [[0.0] * (2**16 + 1)] * 4, "y": ["a", "b"] * 2}), tmp_path / "v.parquet")
    with pytest.raises(DataError, match="has lists of 65,537 numbers"):
        bigmc.ingest(tmp_path / "v.parquet", to=tmp_path / "d.bigmc", label="y", vector="v")


def test_missing_lists_are_filled_with_means_and_marked_once(tmp_path):
    rows = [None if k % 10 == 3 else row for k, row in enumerate(LISTS)]
    as_parquet(pa.array(rows, pa.list_(pa.float64())), tmp_path / "v.parquet")
    data = bigmc.ingest(
        tmp_path / "v.parquet", to=tmp_path / "d.bigmc", label="y", vector="v", missing="fill"
    )
    assert data.n_features == WIDTH + 1
    present = np.array([k % 10 != 3 for k in range(N)])
    frame = pd.DataFrame(VALUES.copy(), columns=COLUMNS)
    frame.loc[~present] = np.nan
    filled = frame.fillna(frame.mean()).assign(missing=(~present).astype(float), y=LABELS)
    other = bigmc.ingest(filled, to=tmp_path / "o.bigmc", label="y", dense=[*COLUMNS, "missing"])
    (mine, _), (theirs, _) = read_back(data), read_back(other)
    np.testing.assert_allclose(mine.toarray(), theirs.toarray(), rtol=1e-12, atol=1e-15)


def test_beside_texts_it_is_as_columns_beside_texts(tmp_path):
    texts = [f"word{k % 7} of{k % 3}" for k in range(N)]
    lists = pa.table({"t": texts, "v": pa.array(LISTS), "y": LABELS})
    numbers = pa.table({"t": texts, **dict(zip(COLUMNS, VALUES.T, strict=True)), "y": LABELS})
    bigmc.ingest(lists, to=tmp_path / "l.bigmc", label="y", text="t", vector="v", standardize=True)
    bigmc.ingest(numbers, to=tmp_path / "n.bigmc", label="y", text="t", dense=COLUMNS, standardize=True)
    assert stored(tmp_path / "l.bigmc") == stored(tmp_path / "n.bigmc")


def test_an_append_has_the_width_of_the_dataset(tmp_path):
    as_parquet(pa.array(LISTS), tmp_path / "v.parquet")
    bigmc.ingest(tmp_path / "v.parquet", to=tmp_path / "d.bigmc", label="y", vector="v")
    more = json_lines(tmp_path / "more.jsonl", VALUES + 1.0)
    both = bigmc.ingest(more, to=tmp_path / "d.bigmc", append=True)
    assert (both.n_samples, both.n_features) == (2 * N, WIDTH)
    longer = json_lines(tmp_path / "longer.jsonl", np.hstack([VALUES, VALUES]))
    with pytest.raises(DataError, match="has 10 numbers, where 5 are expected"):
        bigmc.ingest(longer, to=tmp_path / "d.bigmc", append=True)


@pytest.mark.parametrize("kind", ["null", "lists", "jsonl", "lacking"])
def test_lists_of_an_append_may_all_be_missing(kind, tmp_path):
    rows = [None if k % 10 == 3 else row for k, row in enumerate(LISTS)]
    lists = pa.list_(pa.float64())
    common = {"label": "y", "vector": "v", "dense": "x", "missing": "fill"}
    first = pa.table({"v": pa.array(rows, lists), "x": VALUES[:, 0], "y": LABELS})
    bigmc.ingest(first, to=tmp_path / "d.bigmc", **common)
    more = pa.table({"v": pa.array([None] * 4, lists), "x": VALUES[:4, 1], "y": LABELS[:4]})
    if kind == "lists":
        pq.write_table(more, tmp_path / "more.parquet")
    elif kind == "null":
        pq.write_table(more.set_column(0, "v", pa.nulls(4)), tmp_path / "more.parquet")
    else:
        kept = more.drop_columns("v") if kind == "lacking" else more
        text = "".join(json.dumps(row) + "\n" for row in kept.to_pylist())
        (tmp_path / "more.jsonl").write_text(text)
    (file,) = tmp_path.glob("more.*")
    bigmc.ingest(file, to=tmp_path / "d.bigmc", append=True)
    matrix, _ = read_back(Dataset.open(tmp_path / "d.bigmc" / "appends" / "000001"))
    mean = np.array([row for row in rows if row is not None]).mean(axis=0)
    np.testing.assert_allclose(matrix.toarray()[:, 1 : 1 + WIDTH], np.tile(mean, (4, 1)), rtol=1e-12)
    # the first dataset still needs a list to know the length
    if file.suffix == ".parquet" and kind == "lists":
        with pytest.raises(DataError, match="has no list of numbers"):
            bigmc.ingest(file, to=tmp_path / "new.bigmc", **common)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    as_parquet(pa.array(LISTS), folder / "v.parquet")
    bigmc.fit(folder / "v.parquet", to=folder / "m", label="y")
    return bigmc.load_model(folder / "m")


def test_fit_takes_lists_of_one_length_without_being_told(model):
    assert [vector["column"] for vector in model.model_.feature_spec["vectors"]] == ["v"]
    with_nan = VALUES.copy()
    with_nan[3, 2] = np.nan  # filled, as numbers are by fit
    assert len(model.predict(pd.DataFrame({"v": list(with_nan)}))) == N


def test_fit_takes_texts_of_lists_in_csv(tmp_path):
    bigmc.fit(as_csv([str(row) for row in LISTS], tmp_path / "v.csv"), to=tmp_path / "m", label="y")
    assert bigmc.load_model(tmp_path / "m").model_.feature_spec["columns"] == COLUMNS


def test_fit_leaves_out_lists_of_several_lengths(tmp_path):
    boxes = pa.array([[1.0] * (1 + k % 4) for k in range(N)])
    table = pa.table({"boxes": boxes, "x": VALUES[:, 1], "y": LABELS})
    bigmc.fit(table, to=tmp_path / "m", label="y")
    assert bigmc.load_model(tmp_path / "m").model_.feature_spec["columns"] == ["x"]


@pytest.mark.parametrize("source", SOURCES)
def test_predictions_are_those_of_the_array(source, model, tmp_path):
    samples = SOURCES[source](tmp_path)
    samples = list(samples) if source == "dicts" else samples
    expected = model.decision_function(pa.table({"v": pa.array(LISTS)}))
    np.testing.assert_array_equal(model.decision_function(samples), expected)


def test_a_sample_with_another_length_is_refused(model):
    with pytest.raises(BigmcError, match="sample 1: column 'v' has 2 numbers, where 5 are expected"):
        model.predict([{"v": LISTS[0]}, {"v": [1.0, 2.0]}])


def test_explanations_name_the_places(model):
    explained = bigmc.explain(model, {"v": VALUES[0]}, top=1)
    assert explained.classes[0].words[0].word == "v.1"


def test_other_lists_are_refused_with_a_cure(tmp_path):
    table = pa.table({"words": [["a", "b"]] * N, "v": pa.array(LISTS), "y": LABELS})
    with pytest.raises(DataError, match="which is not a list of numbers; make it a column of texts"):
        bigmc.ingest(table, to=tmp_path / "d.bigmc", label="y", vector="words")
    with pytest.raises(DataError, match="which is not a number; name it with --vector"):
        bigmc.ingest(table, to=tmp_path / "d.bigmc", label="y", dense="v")
