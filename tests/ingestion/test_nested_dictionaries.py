"""Parquet columns of dictionaries inside lists and objects, against the same columns of plain texts."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bigmc

ROWS = 1000


def table(*, dictionaries):
    """Return rows whose labels are lists and whose texts are in objects, as plain texts or dictionaries."""
    rng = np.random.default_rng(7)
    sizes = rng.integers(0, 3, ROWS)
    ends = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    labels = pa.array([f"label {i}" for i in rng.integers(0, 30, sizes.sum())])
    texts = pa.array([f"word{i} word{i % 7}" for i in rng.integers(0, 200, ROWS)])
    if dictionaries:
        labels, texts = labels.dictionary_encode(), texts.dictionary_encode()
    document = pa.StructArray.from_arrays([texts], ["body"])
    return pa.table({"topics": pa.ListArray.from_arrays(ends, labels), "doc": document})


@pytest.mark.parametrize("rows_of_a_group", [7, 300, ROWS])
def test_dictionaries_in_lists_and_objects(tmp_path, rows_of_a_group):
    """Each row group has dictionaries of its own, in which a value has another place."""
    for name, dictionaries in (("plain", False), ("encoded", True)):
        pq.write_table(
            table(dictionaries=dictionaries), tmp_path / f"{name}.parquet", row_group_size=rows_of_a_group
        )
        bigmc.ingest(
            tmp_path / f"{name}.parquet", tmp_path / name, text="doc.body", label="topics", hash_bits=10
        )
    plain, encoded = (
        {file.relative_to(folder): file.read_bytes() for file in sorted(folder.rglob("c/*"))}
        | {"classes": (folder / "classes.parquet").read_bytes()}
        | {file.relative_to(folder): file.read_bytes() for file in sorted(folder.rglob("rows.parquet"))}
        for folder in (tmp_path / "plain", tmp_path / "encoded")
    )
    assert len(plain) > 3
    assert encoded == plain


def test_predictions_and_evaluations_of_such_rows(tmp_path):
    for name, dictionaries in (("plain", False), ("encoded", True)):
        pq.write_table(table(dictionaries=dictionaries), tmp_path / f"{name}.parquet", row_group_size=300)
    bigmc.ingest(tmp_path / "plain.parquet", tmp_path / "d", text="doc.body", label="topics", hash_bits=10)
    model = tmp_path / "m.model"
    bigmc.train("sparse", tmp_path / "d", model)
    figures, predictions = [], []
    for name in ("plain", "encoded"):
        figures.append(bigmc.evaluate(model, tmp_path / f"{name}.parquet")["micro_f1"])
        bigmc.predict(model, tmp_path / f"{name}.parquet", tmp_path / f"{name}_p.parquet", keep=["topics"])
        predictions.append(pq.read_table(tmp_path / f"{name}_p.parquet").to_pylist())
    assert figures[0] == figures[1]
    assert predictions[0] == predictions[1]
    assert [row["topics"] for row in predictions[0]] == table(dictionaries=False)["topics"].to_pylist()
