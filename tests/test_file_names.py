"""Files whose names are no text: Linux allows any bytes, and old archives hold names in other encodings."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigmc import api
from bigmc.ingestion.parts.scan import ReadRequest, expand_sources, read, scan

ROWS = pd.DataFrame({"t": [f"good w{i % 7}" if i % 2 else f"bad w{i % 5}" for i in range(80)]})
ROWS["y"] = np.where(ROWS.index % 2, "a", "b")


@pytest.fixture
def folder(tmp_path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    folder.mkdir()
    return folder


def write(rows, path):
    """Write Parquet or compressed CSV."""
    with open(path, "wb") as file:
        if path.suffix == ".parquet":
            pq.write_table(pa.Table.from_pandas(rows), file)
        else:
            with pa.CompressedOutputStream(file, "zstd") as stream:
                stream.write(rows.to_csv(index=False).encode())


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv.zst"])
def test_sources_datasets_models_and_results(folder, name):
    write(ROWS, folder / name)
    write(ROWS, folder / f"more.{name}")
    dataset, model = folder / "d.bigmc", folder / os.fsdecode(b"\xff.model")
    api.ingest(folder / name, dataset, text="t", label="y")
    assert api.ingest(folder / f"more.{name}", dataset, append=True).n_samples == 160
    assert api.verify(dataset) == []
    api.train("sparse", dataset, model, alpha=1e-3)
    assert api.predict(model, folder / name, folder / "p.parquet")["n_samples"] == 80
    assert api.evaluate(model, dataset)["accuracy"] == 1
    api.report(model, folder / "r.html", dataset=dataset)
    api.export(model, folder / "card.md")
    assert "\\udcff.model" in (folder / "card.md").read_text()


def test_a_few_columns_at_a_time_through_mapped_files(folder):
    table = pa.table({f"x{i}": range(i, i + 300) for i in range(60)})
    with open(folder / "rows.parquet", "wb") as file:
        pq.write_table(table, file)
    (part,) = scan(expand_sources(folder / "rows.parquet"), 1 << 30)
    request = ReadRequest(table.column_names, 20_000, reader_bytes=1 << 14, scratch=str(folder))
    assert pa.Table.from_batches([batch.table for batch in read(part, request)]).equals(table)
