"""Many small files: the dataset is that of one file with their rows, and few parts are written."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigmc import api
from bigmc.ingestion.parts import small_files
from bigmc.ingestion.parts.scan import Part

N_FILES = 40


@pytest.fixture(scope="module")
def records() -> list[list[dict[str, object]]]:
    """Rows of each file, one to five."""
    rng = np.random.default_rng(0)
    words = [f"word{k}" for k in range(50)]
    return [
        [
            {"text": " ".join(rng.choice(words, 8)), "label": f"class {rng.integers(3)}", "n": i}
            for i in range(rng.integers(1, 6))
        ]
        for _ in range(N_FILES)
    ]


def lines(rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def folder(records, tmp_path):
    """A folder of JSON lines, a file for each of `records`."""
    place = tmp_path / "many"
    place.mkdir()
    for i, rows in enumerate(records):
        (place / f"{i:03d}.jsonl").write_text(lines(rows))
    return place


def options(**more):
    return {"label": "label", "text": ["text"], "hash_bits": 10, "keep": ["n"], **more}


def stored(folder) -> dict[str, bytes]:
    """Every file but those that name the sources."""
    named = folder / "manifest.json", folder / "zarr.json"
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path not in named)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_the_dataset_is_that_of_one_file(records, folder, tmp_path):
    one = tmp_path / "one.jsonl"
    one.write_text(lines(row for rows in records for row in rows))
    api.ingest(one, tmp_path / "one.bigmc", **options())
    api.ingest(folder, tmp_path / "many.bigmc", **options())
    assert stored(tmp_path / "many.bigmc") == stored(tmp_path / "one.bigmc")


def test_few_parts_and_each_on_its_own(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(small_files, "MOST_FILES", 7)
    api.ingest(folder, tmp_path / "whole.bigmc", **options())
    for part in ((1, 2), (0, 2)):
        done = api.ingest_part(folder, tmp_path / "parts.bigmc", part=part, **options())
        assert done["n_pieces"] == 3  # of six: 40 files by 7
    told = []
    api.ingest(folder, tmp_path / "parts.bigmc", progress=told.append, **options())
    ingested = [message for message in told if message.stage == "ingest"]
    assert ingested[-1].done == ingested[-1].total
    assert not any(message.facts for message in ingested)  # no rows at a speed of 0
    assert stored(tmp_path / "parts.bigmc") == stored(tmp_path / "whole.bigmc")


def test_bad_rows_name_their_own_file_and_line(records, folder, tmp_path):
    (folder / "011.jsonl").write_text(lines(records[11][:1]) + "{oops\n" + lines(records[11][:1]))
    row = sum(map(len, records[:11])) + 1
    with pytest.raises(Exception, match=r"011\.jsonl:2"):
        api.ingest(folder, tmp_path / "x.bigmc", **options())
    dataset = api.ingest(folder, tmp_path / "x.bigmc", **options(on_bad_row="quarantine"))
    rejects = pq.read_table(tmp_path / "x.bigmc" / "rejects.parquet").to_pylist()
    assert [(r["path"], r["line"], r["row_id"]) for r in rejects] == [(str(folder / "011.jsonl"), 2, row)]
    ids = [row for table in sorted((tmp_path / "x.bigmc").rglob("rows.parquet")) for row in ids_of(table)]
    assert sorted(ids) == [i for i in range(dataset.n_samples + 1) if i != row]
    assert dataset.n_samples == sum(map(len, records)) - len(records[11]) + 2


def ids_of(table) -> list[int]:
    return pq.read_table(table).column("row_id").to_pylist()


def test_parquet_files(tmp_path):
    place = tmp_path / "many"
    place.mkdir()
    tables = [pa.table({"text": ["a b", f"c{i}"], "label": ["x", "y"], "n": [i, -i]}) for i in range(9)]
    for i, table in enumerate(tables):
        pq.write_table(table, place / f"{i}.parquet")
    done = api.ingest_part(place, tmp_path / "x.bigmc", part=(0, 1), **options())
    assert done["n_pieces"] == 1
    api.ingest(place, tmp_path / "x.bigmc", **options())
    pq.write_table(pa.concat_tables(tables), tmp_path / "one.parquet")
    api.ingest(tmp_path / "one.parquet", tmp_path / "one.bigmc", **options())
    assert stored(tmp_path / "x.bigmc") == stored(tmp_path / "one.bigmc")


def part(source: int, n_bytes: int, form: str = "csv") -> Part:
    return Part(f"{source}.{form}", form, source, 0, n_bytes, 1, 1, n_bytes)


def sources_of(parts) -> list[list[int]]:
    return [[file.source for file in one.files] or [one.source] for one in parts]


def test_what_goes_together(monkeypatch):
    parts = [part(0, 900), part(0, 10), part(1, 10), part(2, 60), part(3, 50), part(4, 10)]
    # 60 bytes are small where a part has 960; the second part of the first file is not a whole file.
    found = small_files.gather_small_files(parts, 960)
    assert sources_of(found) == [[0], [0], [1, 2, 3, 4]]
    assert [one.index for one in found] == [0, 1, 2]
    assert (found[2].n_rows, found[2].n_bytes) == (4, 130)
    assert sources_of(small_files.gather_small_files(parts, 959)) == [[0], [0], [1], [2], [3, 4]]
    assert sources_of(small_files.gather_small_files([part(i, 60) for i in range(20)], 960)) == [
        list(range(16)),
        list(range(16, 20)),
    ]
    arrays = [part(i, 10, "dense") for i in range(3)]
    assert sources_of(small_files.gather_small_files(arrays, 960)) == [[0], [1], [2]]


def test_a_plan_is_read_back():
    first = small_files.gather_small_files([part(i, 10) for i in range(3)], 960)[0]
    assert Part.from_dict(json.loads(json.dumps(first.to_dict()))) == first
