"""How files are written: delimiters, names, encodings, partitions and nested columns, against pandas."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pa_dataset
import pyarrow.parquet as pq
import pytest

import bigmc
from bigmc.api import ingest, predict, train
from bigmc.errors import DataError
from bigmc.ingestion.job import Job
from bigmc.ingestion.parts.scan import (
    Part,
    ReadHints,
    ReadRequest,
    expand_sources,
    read,
    scan,
    schema,
)
from bigmc.options.raw import FileOptions

TEXTS = ["naïve café", "Grüße – schön", "plain", "smörgåsbord", 'with "quotes"; and more', ""] * 40
FRAME = pd.DataFrame({"t": TEXTS, "y": [f"k{i % 3}" for i in range(len(TEXTS))], "n": range(len(TEXTS))})


def rows(source, options=None, columns=None, part_bytes=1 << 20, types=None):
    """Read a source whole, its parts by way of JSON."""
    sources = expand_sources(source, options or FileOptions())
    columns = columns or schema(sources).names
    hints = ReadHints(types=types or {}, columns=columns)
    found = []
    for part in scan(sources, part_bytes, hints):
        part = Part.from_dict(json.loads(json.dumps(part.to_dict())))
        for batch in read(part, ReadRequest(columns, 512), sources=sources):
            found += batch.table.to_pylist()
    return found


def as_text(frame: pd.DataFrame) -> list[dict[str, str]]:
    return frame.astype(str).to_dict("records")


@pytest.mark.parametrize("delimiter", [";", "|", "\t", " ", "tab"])
@pytest.mark.parametrize("part_bytes", [200, 1 << 20])
def test_delimiters_and_files_without_a_header(tmp_path, delimiter, part_bytes):
    character = {"tab": "\t"}.get(delimiter, delimiter)
    FRAME.to_csv(tmp_path / "a.txt", sep=character, index=False)
    FRAME.to_csv(tmp_path / "b.txt", sep=character, index=False, header=False)
    assert rows(tmp_path / "a.txt", FileOptions(delimiter=delimiter), part_bytes=part_bytes) == as_text(FRAME)
    options = FileOptions(delimiter=delimiter, columns=("t", "y", "n"))
    assert rows(tmp_path / "b.txt", options, part_bytes=part_bytes) == as_text(FRAME)
    again = pd.read_csv(tmp_path / "b.txt", sep=character, names=["t", "y", "n"], keep_default_na=False)
    assert as_text(again) == as_text(FRAME)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-8-sig", "shift_jis"])
@pytest.mark.parametrize("compressed", [False, True])
def test_encodings_are_read_as_python_decodes_them(tmp_path, encoding, compressed):
    frame = FRAME.assign(t=["naïve Grüße" if encoding != "shift_jis" else "日本語 テスト"] * len(FRAME))
    data = frame.to_csv(index=False).encode(encoding)
    path = tmp_path / ("a.csv.gz" if compressed else "a.csv")
    path.write_bytes(gzip.compress(data) if compressed else data)
    assert rows(path, FileOptions(encoding=encoding), part_bytes=500) == as_text(frame)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in as_text(frame)).encode(encoding)
    (tmp_path / "a.jsonl").write_bytes(lines)
    assert rows(tmp_path / "a.jsonl", FileOptions(encoding=encoding)) == as_text(frame)


def test_wrong_encodings_and_options_name_the_cure(tmp_path):
    (tmp_path / "latin.csv").write_bytes("t,y\ncafé,a\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.csv:2: column 't' is not valid UTF-8; .*--encoding latin-1"):
        rows(tmp_path / "latin.csv")
    (tmp_path / "wide.csv").write_text("t,y\na,b\n", encoding="utf-16")
    with pytest.raises(DataError, match="give --encoding utf-16"):
        rows(tmp_path / "wide.csv")
    (tmp_path / "odd.csv").write_bytes(b"t,y\nx,\x81\n")
    with pytest.raises(DataError, match=r"not valid cp1252 from about line 1 on .*latin-1 accepts any bytes"):
        rows(tmp_path / "odd.csv", FileOptions(encoding="cp1252"))
    (tmp_path / "x.jsonl").write_text('{"t": "a"}\n')
    for path, options, message in [
        ("latin.csv", {"encoding": "klingon"}, "unknown encoding 'klingon'"),
        ("latin.csv", {"encoding": "base64"}, "unknown encoding 'base64'"),
        ("latin.csv", {"delimiter": "ab"}, "not a single ASCII character"),
        ("latin.csv", {"delimiter": '"'}, "not a single ASCII character"),
        ("latin.csv", {"columns": ("a", "a")}, "its own name"),
        ("latin.csv", {"columns": ("a", "b", "c"), "encoding": "latin-1"}, "2 fields, --columns names 3"),
        ("x.jsonl", {"delimiter": ";"}, "--delimiter and --columns are for delimited text"),
    ]:
        with pytest.raises(DataError, match=message):
            rows(tmp_path / path, FileOptions(**options))


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_folders_name_columns_as_pyarrow_reads_hive_partitions(tmp_path, format):
    table = pa.table({
        "t": [f"text {i}" for i in range(60)],
        "lang": [["de", "fr", "a b/c"][i % 3] for i in range(60)],
        "day": [["2026-11-21", "2026-11-22"][i % 2] for i in range(60)],
    })  # fmt: skip
    text = pa.schema([("lang", pa.string()), ("day", pa.string())])
    hive = pa_dataset.partitioning(text, flavor="hive")
    pa_dataset.write_dataset(table, tmp_path / "p", format=format, partitioning=hive)
    columns = ["day", "t", "lang"]
    expected = pa_dataset.dataset(tmp_path / "p", format=format, partitioning=hive).to_table(columns)
    expected = expected.sort_by("t").to_pylist()
    assert sorted(rows(tmp_path / "p", columns=columns), key=lambda row: row["t"]) == expected
    assert {row["lang"] for row in rows(tmp_path / "p", columns=["lang"])} == {"de", "fr", "a b/c"}
    one = rows(tmp_path / "p" / "lang=de" / "day=2026-11-21", columns=["lang", "day"])
    assert one == [{"lang": "de", "day": "2026-11-21"}] * 10
    with pytest.raises(DataError, match="no column 'month'"):
        schema(expand_sources(tmp_path / "p"), ["month"])
    data = ingest(tmp_path / "p", tmp_path / "d.bigmc", text="t", label="lang", keep="day")
    assert sorted(data.classes.tolist()) == ["a b/c", "de", "fr"]
    assert {day for s in data.shards for day in s.table(["day"]).column("day").to_pylist()} == {
        "2026-11-21", "2026-11-22",
    }  # fmt: skip


NESTED = [
    {"id": 1, "doc": {"text": "one two", "meta": {"lang": "de", "n": 4}}},
    {"id": 2, "doc": {"text": "three", "meta": {"lang": None, "n": 5}}},
    {"id": 3, "doc": {"text": None, "meta": None}},
    {"id": 4, "doc": None},
]


@pytest.mark.parametrize("form", ["jsonl", "parquet", "table"])
def test_fields_inside_columns(tmp_path, form):
    if form == "jsonl":
        source = tmp_path / "n.jsonl"
        source.write_text("".join(json.dumps(row) + "\n" for row in NESTED))
    else:
        source = pa.Table.from_pylist(NESTED)
    if form == "parquet":
        pq.write_table(source, tmp_path / "n.parquet")
        source = tmp_path / "n.parquet"
    flat = pd.json_normalize(NESTED)[["doc.meta.lang", "id", "doc.text", "doc.meta.n"]]
    expected = json.loads(flat.to_json(orient="records"))
    types = {"doc.text": pa.string()}
    assert rows(source, columns=list(flat.columns), types=types) == expected
    with pytest.raises(DataError, match=r"no column 'doc.txt'; did you mean 'doc.text'"):
        schema(expand_sources(source), ["doc.txt"])


def test_a_column_with_a_dot_in_its_name_comes_first(tmp_path):
    source = pa.table({"a.b": ["own"], "a": [{"b": "inner", "c": "other"}]})
    assert rows(source, columns=["a.b", "a.c"]) == [{"a.b": "own", "a.c": "other"}]


def test_the_same_dataset_however_the_rows_are_written(tmp_path):
    """Also at prediction, and when more is appended."""
    frame = FRAME.iloc[:200]
    (tmp_path / "plain.csv").write_text(frame.to_csv(index=False), encoding="utf-8")
    (tmp_path / "odd.txt").write_bytes(frame.to_csv(index=False, header=False, sep="|").encode("utf-16"))
    odd = {"delimiter": "|", "columns": ["t", "y", "n"], "encoding": "utf-16"}
    contents = {"text": "t", "label": "y", "keep": "n"}
    first = ingest(tmp_path / "plain.csv", tmp_path / "a.bigmc", **contents)
    second = ingest(tmp_path / "odd.txt", tmp_path / "b.bigmc", **contents, **odd)
    for one, other in zip(first.shards, second.shards, strict=True):
        files = [{file.path: file.sha256 for file in shard.entry.files} for shard in (one, other)]
        assert files[0] == files[1]
    ingest(tmp_path / "odd.txt", tmp_path / "b.bigmc", **contents, **odd)  # nothing to do
    (tmp_path / "more.txt").write_bytes("new text|k1|7\n".encode("utf-16"))
    assert ingest(tmp_path / "more.txt", tmp_path / "b.bigmc", append=True, **odd).n_samples == 201
    train("sparse", tmp_path / "a.bigmc", tmp_path / "m.model", alpha=1e-3)
    predict(tmp_path / "m.model", tmp_path / "plain.csv", tmp_path / "p.parquet")
    predict(tmp_path / "m.model", tmp_path / "odd.txt", tmp_path / "q.parquet", **odd)
    assert (tmp_path / "p.parquet").read_bytes() == (tmp_path / "q.parquet").read_bytes()


def test_weights_of_rows_count_in_training(tmp_path):
    """A row of weight k counts as k rows; rows of weight 0 as none."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(150, 4)), rng.integers(0, 3, 150)
    X[np.arange(150), y] += 1.5
    weight = rng.integers(0, 3, 150)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=y, w=weight)
    repeated = frame.loc[frame.index.repeat(frame.w)]
    models = {}
    for name, rows_, options in [("w", frame, {"weight": "w"}), ("r", repeated, {})]:
        rows_.to_parquet(tmp_path / f"{name}.parquet")
        dataset = tmp_path / f"{name}.bigmc"
        contents = {"dense": list("abcd"), "label": "y", "split": {"train": 1.0}}
        ingest(tmp_path / f"{name}.parquet", dataset, **contents, **options)
        settings = {"alpha": 0.01, "ridge": 0.1, "tol": 1e-10, "max_passes": 500}
        models[name] = train("sparse", dataset, tmp_path / f"{name}.model", **settings)
    assert models["w"]["objective"] == pytest.approx(models["r"]["objective"], rel=1e-7)
    boosted = train("boost", tmp_path / "w.bigmc", tmp_path / "w.trees", n_rounds=3, C=100.0)
    arrays = bigmc.MultiBoostClassifier(n_rounds=3, C=100.0, random_state=0).fit(X, y, sample_weight=weight)
    assert boosted["objective"] == pytest.approx(arrays.objective_, rel=1e-6)
    with pytest.raises(DataError, match=r"weights of its rows, but .* does not support weights"):
        train("mrc", tmp_path / "w.bigmc", tmp_path / "m.model")


def test_weights_that_are_none(tmp_path):
    frame = pd.DataFrame({"t": ["a b", "c d", "e f", "g h"], "y": list("abab"), "w": ["1", "-1", "", "x"]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    contents = {"text": "t", "label": "y", "weight": "w"}
    with pytest.raises(DataError, match=r"a\.csv:3: the weight '-1' is not a number of at least 0"):
        ingest(tmp_path / "a.csv", tmp_path / "d.bigmc", **contents)
    with pytest.raises(DataError, match="is the weight and a feature"):
        ingest(tmp_path / "a.csv", tmp_path / "d.bigmc", **contents, dense="w")
    pq.write_table(pa.table({"t": ["a"], "y": ["b"], "w": [[1.0]]}), tmp_path / "c.parquet")
    with pytest.raises(DataError, match="weights are of type"):
        ingest(tmp_path / "c.parquet", tmp_path / "e.bigmc", **contents)


def test_encoded_streams_are_read_without_being_held(tmp_path):
    """Memory of decoding does not grow with the file: it is read in pieces through a small buffer."""
    from bigmc.ingestion.sources.dialect import Dialect
    from bigmc.ingestion.sources.source import Source, open_text

    path = Path(tmp_path / "a.txt")
    path.write_text("ä" * 300_000, encoding="utf-16")
    with open_text(Source(str(path), "csv", dialect=Dialect(encoding="utf-16"))) as stream:
        pieces = list(iter(lambda: stream.read(1000), b""))
    assert b"".join(pieces).decode() == "ä" * 300_000
    assert max(len(piece) for piece in pieces) == 1000


def test_a_dataset_made_among_its_sources_is_no_source(tmp_path, monkeypatch):
    """Run again, also after a kill, the same command is done, or continues."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("text,label\n" + "one,x\ntwo,y\n" * 40)
    options = {"text": "text", "label": "label", "hash_bits": 6, "memory_limit": "64MB"}
    with monkeypatch.context() as killed:
        killed.setattr(Job, "finish", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ingest(folder, folder / "d.bigmc", **options)
    for _ in range(2):
        assert ingest(folder, folder / "d.bigmc", **options).n_samples == 80
    assert ingest(folder, tmp_path / "other.bigmc", **options).n_samples == 80
