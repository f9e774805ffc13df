"""Every source and frame makes the dataset, to the byte, that a Parquet file of the same rows makes."""

import bz2
import gzip
import hashlib
import io
import json
import lzma

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from bigmc import api
from bigmc.engine import ThreadEngine
from bigmc.errors import DataError
from bigmc.ingestion.readers import chunks, record_limit, text_parts

LABELS = ["NA", "null", "a ", "a", "b"]
COLOURS = ["rot", "grün", "blau, hell", "true", "1"]
N = 2000
TABLE = pa.table({
    "text": [f'a{i % 13} b{i % 7} é{i} "x"' for i in range(N)],
    "colour": [COLOURS[i * 5 // N] for i in range(N)],  # in order, so that folders of it keep the rows' order
    "x": [i / 4 for i in range(N)],
    "w": [float(i % 3 + 1) for i in range(N)],
    "label": [LABELS[i * i % 5 if i % 4 else 4] for i in range(N)],
})  # fmt: skip
CONTENTS = {
    "text": "text", "categorical": "colour", "numeric": "x", "weight": "w", "label": "label", "hash_bits": 10,
}  # fmt: skip


def shards_of(source, to, **options):
    """Ingest, and return the digests of everything but what tells where the rows came from."""
    api.ingest(source, to, engine=ThreadEngine(2), **{**CONTENTS, **options})
    files = [file for place in ("shards", "statistics") for file in sorted((to / place).rglob("*"))]
    files += [to / "classes.parquet", to / "names.parquet"]
    return {
        str(file.relative_to(to)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file.is_file()
    }


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("expected")
    pq.write_table(TABLE, folder / "rows.parquet", row_group_size=300)
    return shards_of(folder / "rows.parquet", folder / "d.bigmc")


def encoded(table):
    """Return the table with dictionaries of texts."""
    for name in ("text", "colour", "label"):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table[name].dictionary_encode())
    return table


def pandas_frame():
    frame = TABLE.to_pandas()
    return frame.astype({"colour": "category", "label": "category", "w": "float32", "text": "string"})


def polars_frame(kind):
    pl = pytest.importorskip("polars")
    types = {"Categorical": pl.Categorical, "Enum": pl.Enum(COLOURS), "String": pl.String}
    return pl.from_arrow(TABLE).with_columns(pl.col("colour").cast(types[kind]))


def dask_frame():
    return pytest.importorskip("dask.dataframe").from_pandas(pandas_frame(), npartitions=3)


def duckdb_relation():
    place = pytest.importorskip("duckdb")  # relations of older releases do not keep a connection open
    kinds = ", ".join("'" + colour + "'" for colour in COLOURS)
    place.register("given", TABLE)
    return place.sql(f"SELECT text, colour::ENUM({kinds}) AS colour, x, w, label FROM given")


def hugging_face():
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset(TABLE)


FRAMES = {
    "pyarrow table": lambda: TABLE,
    "pyarrow table of dictionaries": lambda: encoded(TABLE),
    "pyarrow record batch reader": lambda: encoded(TABLE).to_reader(max_chunksize=333),
    "pyarrow record batches": lambda: iter(encoded(TABLE).to_batches(max_chunksize=333)),
    "pyarrow dataset": lambda: pads.dataset(encoded(TABLE)),
    "pyarrow scanner": lambda: pads.dataset(TABLE).scanner(batch_size=77),
    "pandas": lambda: TABLE.to_pandas(),
    "pandas with categories": pandas_frame,
    "polars": lambda: polars_frame("String"),
    "polars with categories": lambda: polars_frame("Categorical"),
    "polars with an enumeration": lambda: polars_frame("Enum"),
    "lazy polars": lambda: polars_frame("String").lazy(),
    "lazy polars with categories": lambda: polars_frame("Categorical").lazy(),
    "dask with categories": dask_frame,
    "DuckDB with an enumeration": duckdb_relation,
    "Hugging Face": hugging_face,
    "Hugging Face, iterable": lambda: hugging_face().to_iterable_dataset(2),
    "dicts": lambda: iter(TABLE.to_pylist()),
}


@pytest.mark.exhaustive(keep=9)
@pytest.mark.parametrize("name", FRAMES)
def test_frames_and_streams(name, tmp_path, expected):
    assert shards_of(FRAMES[name](), tmp_path / "d.bigmc") == expected


def with_long_document(n_words):
    """Return some rows, the last of which has a document of this many words.

    Counts of names are those of parts, and estimates once a part has seen many words: so there are few.
    """
    rows = TABLE.slice(0, 300).to_pylist()
    rows[-1]["text"] = " ".join(f"w{word * word % 53}" for word in range(n_words))
    return pa.Table.from_pylist(rows, schema=TABLE.schema)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "table", "dicts"])
def test_a_long_document(kind, tmp_path):
    """Its words are more than are sorted at once, its bytes more than those of a usual batch."""
    table = with_long_document(400_000)
    limit = {"memory_limit": "200MB"}
    pq.write_table(table, tmp_path / "rows.parquet")
    expected = shards_of(tmp_path / "rows.parquet", tmp_path / "expected.bigmc", **limit)
    source = {"table": table, "dicts": iter(table.to_pylist())}.get(kind)
    if source is None:
        source = tmp_path / f"rows.{kind}"
        source.write_bytes(as_csv(table) if kind == "csv" else as_lines(table))
    assert shards_of(source, tmp_path / "d.bigmc", **limit) == expected


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_document_longer_than_any_may_be(kind, tmp_path, monkeypatch):
    for module in (record_limit, chunks, text_parts):
        monkeypatch.setattr(module, "MAX_RECORD_BYTES", 1 << 20)
    table = with_long_document(300_000)
    source = tmp_path / f"rows.{kind}"
    source.write_bytes(as_csv(table) if kind == "csv" else as_lines(table))
    line = 301 if kind == "csv" else 300
    with pytest.raises(DataError, match=f"rows.{kind}:{line}: the record is longer than 1 MiB"):
        shards_of(source, tmp_path / "d.bigmc")


def as_csv(table=TABLE, **options):
    out = io.BytesIO()
    pa.csv.write_csv(table, out, pa.csv.WriteOptions(**options))
    return out.getvalue()


def as_lines(table=TABLE):
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()


FILES = {
    "rows.csv": (as_csv(), {}),
    "rows.tsv": (as_csv(delimiter="\t"), {}),
    "semicolons.csv": (as_csv(delimiter=";"), {"delimiter": ";"}),
    "headless.csv": (as_csv(include_header=False), {"columns": TABLE.column_names}),
    "latin.csv": (as_csv().decode().encode("latin-1"), {"encoding": "latin-1"}),
    "utf16.csv": (as_csv().decode().encode("utf-16"), {"encoding": "utf-16"}),
    "rows.csv.gz": (gzip.compress(as_csv()), {}),
    "rows.csv.bz2": (bz2.compress(as_csv()), {}),
    "rows.csv.xz": (lzma.compress(as_csv()), {}),
    "rows.csv.zst": (pa.compress(as_csv(), "zstd", asbytes=True), {}),
    "rows.jsonl": (as_lines(), {}),
    "rows.jsonl.xz": (lzma.compress(as_lines()), {}),
}


@pytest.mark.parametrize("name", FILES)
def test_files(name, tmp_path, expected):
    content, options = FILES[name]
    (tmp_path / name).write_bytes(content)
    assert shards_of(tmp_path / name, tmp_path / "d.bigmc", **options) == expected


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_partitioned_folders(format, tmp_path, expected):
    """Folders come in the order of their names, so these begin with a number."""
    first = TABLE["colour"].combine_chunks().dictionary_encode()
    for number, colour in enumerate(first.dictionary.to_pylist()):
        rows = TABLE.filter(pa.compute.equal(TABLE["colour"], colour))
        folder = tmp_path / "in" / f"part={number}" / f"colour={colour}"
        folder.mkdir(parents=True)
        if format == "parquet":
            pq.write_table(rows.drop_columns("colour"), folder / "rows.parquet")
        else:
            (folder / "rows.csv").write_bytes(as_csv(rows.drop_columns("colour")))
    assert shards_of(tmp_path / "in", tmp_path / "d.bigmc") == expected


def test_nested_columns(tmp_path):
    contents = {"categorical": None, "numeric": None, "weight": "doc.more.w"}
    flat = shards_of(TABLE, tmp_path / "flat.bigmc", **{**contents, "weight": "w"})
    rows = [
        {"doc": {"text": row["text"], "more": {"w": row["w"], "label": row["label"]}}}
        for row in TABLE.to_pylist()
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    inner = contents | {"text": "doc.text", "label": "doc.more.label"}
    for number, source in enumerate(
        (tmp_path / "rows.jsonl", tmp_path / "rows.parquet", pa.Table.from_pylist(rows), iter(rows))
    ):
        assert shards_of(source, tmp_path / f"{number}.bigmc", **inner) == flat
