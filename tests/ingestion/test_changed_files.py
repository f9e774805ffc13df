"""Files that change, by as many bytes as before, while they are scanned and read."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigmc import api
from bigmc.errors import DataError
from bigmc.ingestion import job as jobs
from bigmc.ingestion.parts.scan import ReadRequest, expand_sources, read, scan

FORMATS = ("csv", "jsonl", "svmlight", "parquet", "csv.gz")
N_ROWS = 4_000


def write(path, label):
    """Write rows of one label; the files of two labels have the same size."""
    if path.name.endswith(".parquet"):
        table = pa.table({"label": [label] * N_ROWS, "text": ["some words"] * N_ROWS})
        pq.write_table(table, path, compression="none", use_dictionary=False, row_group_size=N_ROWS // 2)
        return
    row = {"csv": f"{label},some words\n", "jsonl": f'{{"label": "{label}", "text": "some words"}}\n'}
    head = "label,text\n" if ".csv" in path.name else ""
    text = head + row.get(path.name.split(".")[1], f"{label} 1:1 2:1\n") * N_ROWS
    if path.suffix == ".gz":
        with pa.CompressedOutputStream(str(path), "gzip") as stream:
            stream.write(text.encode())
    else:
        path.write_text(text)


def replace_by_another(path):
    """Put another file of the same size in the place of one, in a moment of its own."""
    before = path.stat()
    other = path.with_name(f"other.{path.name.partition('.')[2]}")
    write(other, "2")
    assert other.stat().st_size == before.st_size
    os.utime(other, ns=(before.st_mtime_ns, before.st_mtime_ns + 1))
    os.replace(other, path)


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("moment", ["before", "meanwhile"])
def test_a_part_of_another_file_of_its_size_is_refused(tmp_path, ending, moment):
    """Labels of both files together were a dataset of which nothing said so."""
    path = tmp_path / f"rows.{ending}"
    write(path, "1")
    sources = expand_sources(path)
    part = scan(sources, 1 << 40)[0]
    batches = read(part, ReadRequest(batch_bytes=1 << 12), sources=sources)
    if moment == "meanwhile":
        next(batches)
    replace_by_another(path)
    with pytest.raises(DataError, match=rf"rows\.{ending}: the file has changed since it was scanned; start"):
        list(batches)


def test_what_a_change_breaks_is_called_a_change(tmp_path):
    path = tmp_path / "rows.parquet"
    write(path, "1")
    part = scan(expand_sources(path), 1)[1]
    batches = read(part, ReadRequest(batch_bytes=1 << 12))
    next(batches)
    with open(path, "r+b") as file:
        file.write(b"\xff" * path.stat().st_size)
    with pytest.raises(DataError, match="has changed since it was scanned"):
        list(batches)


def test_a_file_that_changes_before_it_is_scanned_is_not_the_one_of_the_recipe(tmp_path, monkeypatch):
    """The rows of the later file would belong to the time and size of the earlier one."""
    path, to = tmp_path / "rows.csv", tmp_path / "d.bigmc"
    write(path, "1")
    scanned = jobs.scan

    def replaced_before(sources, *rest):
        replace_by_another(path)
        return scanned(sources, *rest)

    monkeypatch.setattr(jobs, "scan", replaced_before)
    with pytest.raises(DataError, match="has changed since the command began"):
        api.ingest(path, to, text="text", label="label")
    monkeypatch.undo()
    path.write_text("label,text\n" + "1,some words\n2,other words\n" * 10)
    assert api.ingest(path, to, text="text", label="label").n_samples == 20
