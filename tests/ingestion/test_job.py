"""Whatever the source, the stored rows are those that scikit-learn and SciPy make of it."""

import dataclasses
import gzip
import json

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from read_back import assert_same_matrix, read_back
from sklearn.datasets import dump_svmlight_file
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.preprocessing import normalize

from bigmc import api
from bigmc.engine import ThreadEngine
from bigmc.ingestion import job as job_module
from bigmc.ingestion import memory
from bigmc.ingestion.writing import part_writer, shard_placement
from bigmc.store.block import read_block
from bigmc.store.files.layout import read_manifest
from bigmc.store.verify import verify

N = 700
WORDS = ["the", "a", "model", "of", "data", "Größe", "naïve", "İstanbul", "東京", "x1", "don't", "ΣΑΣ"]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, rng.integers(0, 15))) + f" n{i}" for i in range(N)]
    return pa.table(
        {
            "text": texts,
            "title": [f'say "{i % 9}",\nplease' for i in range(N)],
            "colour": [f"c{k}" for k in rng.integers(0, 5, N)],
            "size": rng.normal(size=N).round(3) * (rng.random(N) < 0.8),
            "count": rng.integers(0, 4, N),
            "label": [f"class {k}" for k in rng.integers(0, 3, N)],
            "author": [f"author {k}" for k in rng.integers(0, 40, N)],
        }
    )


@pytest.fixture
def small_parts(monkeypatch):
    """Cut even small sources into several parts."""
    monkeypatch.setattr(job_module, "SMALLEST_PART", 1 << 13)
    monkeypatch.setattr(job_module, "ROWS_PER_PART", 100)


def write(table: pa.Table, form: str, folder) -> object:
    """Write the table in a format, or in several files; return what to pass as the source."""
    halves = [table.slice(0, N // 2), table.slice(N // 2)]
    if form == "csv":
        pa_csv.write_csv(table, folder / "t.csv")
        return folder / "t.csv"
    if form == "csv.gz":
        with gzip.open(folder / "t.csv.gz", "wb") as file:
            pa_csv.write_csv(table, file)
        return str(folder / "t.csv.gz")
    if form == "jsonl":
        lines = (json.dumps(row, ensure_ascii=bool(i % 2)) for i, row in enumerate(table.to_pylist()))
        (folder / "t.jsonl").write_text("\n".join(lines) + "\n")
        return folder / "t.jsonl"
    if form == "glob of Parquet":
        for name, half in zip("ab", halves, strict=True):
            pq.write_table(half, folder / f"{name}.parquet", row_group_size=100)
        return str(folder / "*.parquet")
    if form == "folder of CSV":
        for name, half in zip("ab", halves, strict=True):
            pa_csv.write_csv(half, folder / f"{name}.csv")
        return folder
    if form == "list of JSONL":
        paths = [folder / "b.jsonl", folder / "a.jsonl"]
        for path, half in zip(paths, halves, strict=True):
            path.write_text("".join(json.dumps(row) + "\n" for row in half.to_pylist()))
        return paths
    return table


FORMS = ["csv", "csv.gz", "jsonl", "glob of Parquet", "folder of CSV", "list of JSONL", "table"]


@pytest.mark.parametrize("form", FORMS)
def test_text_of_every_format_equals_hashing_vectorizer(form, table, small_parts, tmp_path):
    (tmp_path / "in").mkdir()
    source = write(table, form, tmp_path / "in")
    dataset = api.ingest(
        source, tmp_path / "d.bigmc", text="text", label="label", hash_bits=12, keep=["author"], names=False
    )
    matrix, rows = read_back(dataset)
    vectorizer = HashingVectorizer(n_features=1 << 12, norm=None, ngram_range=(1, 2))
    assert_same_matrix(matrix, vectorizer.transform(table.column("text").to_pylist()))
    labels = dataset.classes[rows.column("label").to_numpy()]
    assert labels.tolist() == table.column("label").to_pylist()
    assert rows.column("author").to_pylist() == table.column("author").to_pylist()
    assert rows.column("row_id").to_pylist() == list(range(N))
    assert verify(dataset.path) == []


def test_mixed_columns_equal_hashing_vectorizer_plus_feature_hasher(table, small_parts, tmp_path):
    dataset = api.ingest(
        table.append_column("own", table.column("size")),
        tmp_path / "d.bigmc",
        text=["text", "title"],
        categorical=["colour", "count"],
        numeric="size",
        dense="own",
        label="label",
        hash_bits=10,
        analyzer="char_wb",
        ngrams=(2, 3),
    )
    matrix, _ = read_back(dataset)
    data = table.to_pydict()
    vectorizer = HashingVectorizer(n_features=1 << 10, norm=None, analyzer="char_wb", ngram_range=(2, 3))
    hasher = FeatureHasher(1 << 10)
    pairs = [
        {"colour": colour, "count": str(count), "size": size}
        for colour, count, size in zip(data["colour"], data["count"], data["size"], strict=True)
    ]
    hashed = (
        vectorizer.transform(data["text"]) + vectorizer.transform(data["title"]) + hasher.transform(pairs)
    )
    expected = sp.hstack([hashed, sp.csr_array(np.array(data["size"])[:, None])]).toarray()
    np.testing.assert_allclose(matrix.toarray(), expected, rtol=0, atol=1e-12)
    names = pq.read_table(dataset.path / "names.parquet").to_pylist()
    assert {"bucket": 1 << 10, "name": "own", "sign": 1, "count": None} in names
    counted = {row["name"]: row["count"] for row in names}
    for colour in set(data["colour"]):
        assert counted[f"colour={colour}"] == data["colour"].count(colour)
    index, sign = hasher.transform([{"size": 1.0}]).indices[0], hasher.transform([{"size": 1.0}]).data[0]
    assert {"bucket": index, "name": "size", "sign": sign, "count": None} in names


def test_categories_alone_equal_feature_hasher_with_explicit_zeros(table, tmp_path):
    dataset = api.ingest(
        table, tmp_path / "d.bigmc", categorical=["colour", "author"], label="label", hash_bits=2
    )
    matrix, _ = read_back(dataset)
    pairs = table.select(["colour", "author"]).to_pylist()
    assert_same_matrix(matrix, FeatureHasher(4).transform(pairs))


def test_dense_columns_stay_columns(table, small_parts, tmp_path):
    pa_csv.write_csv(table, tmp_path / "t.csv")
    dataset = api.ingest(tmp_path / "t.csv", tmp_path / "d.bigmc", dense=["size", "count"], label="label")
    matrix, _ = read_back(dataset)
    expected = np.column_stack([table.column("size").to_numpy(), table.column("count").to_numpy()])
    np.testing.assert_array_equal(matrix.toarray(), expected)
    assert dataset.features["columns"] == ["size", "count"]


def matrices() -> dict[str, object]:
    rng = np.random.default_rng(1)
    counts = sp.random_array((N, 30), density=0.2, rng=rng, format="csr")
    counts.data = np.ceil(counts.data * 9)
    dense = rng.normal(size=(N, 7))
    return {
        "numpy": dense,
        "numpy float32": dense.astype(np.float32),
        "numpy integers": rng.integers(-5, 300, (N, 4)),
        "csr": counts,
        "csc": counts.tocsc(),
        "coo matrix": sp.coo_matrix(counts),
        "dask": da.from_array(dense, chunks=(150, 7)),
        "dask sparse": da.from_array(counts.toarray(), chunks=(99, 30)).map_blocks(sp.csr_matrix),
    }


@pytest.mark.parametrize("kind", matrices())
@pytest.mark.parametrize("labels", ["integers", "strings"])
def test_arrays_are_stored_as_they_are(kind, labels, small_parts, tmp_path):
    matrix = matrices()[kind]
    codes = np.random.default_rng(2).integers(0, 4, N)
    y = codes * 10 if labels == "integers" else np.array(["p", "q", "r", "s"])[codes]
    dataset = api.ingest(matrix, tmp_path / "d.bigmc", label=y)
    got, rows = read_back(dataset)
    plain = matrix.compute() if hasattr(matrix, "compute") else matrix
    plain = plain.toarray() if sp.issparse(plain) else plain
    np.testing.assert_array_equal(got.toarray(), plain)
    assert dataset.classes[rows.column("label").to_numpy()].tolist() == y.tolist()
    assert sorted(dataset.classes.tolist()) == dataset.classes.tolist()


def test_svmlight_equals_scipy(small_parts, tmp_path):
    counts = matrices()["csr"]
    y = np.random.default_rng(2).integers(-1, 3, N)
    dump_svmlight_file(counts, y, str(tmp_path / "t.svm"), zero_based=False)
    dataset = api.ingest(tmp_path / "t.svm", tmp_path / "d.bigmc", n_features=30)
    got, rows = read_back(dataset)
    assert_same_matrix(got, counts)
    assert dataset.classes.tolist() == [-1, 0, 1, 2]
    assert dataset.classes[rows.column("label").to_numpy()].tolist() == y.tolist()


@pytest.mark.parametrize("weighting", ["counts", "binary", "l2", "tfidf"])
def test_weighted_values_equal_scikit_learn(weighting, table, small_parts, tmp_path):
    dataset = api.ingest(
        table, tmp_path / "d.bigmc", text="text", label="label", hash_bits=8, weighting=weighting, split="all"
    )
    block = read_block(dataset, 0, dataset.n_features, None)
    values = np.zeros((N, dataset.n_features))
    for shard in range(dataset.n_shards):
        for j in range(dataset.n_features):
            here = slice(block.indptr[shard, j], block.indptr[shard, j + 1])
            values[block.base[shard] + block.indices[here].astype(int), j] = block.data[here]
    column_scale = dataset.column_scale()
    values *= dataset.row_scale(column_scale)[:, None]
    if column_scale is not None:
        values *= column_scale
    counts = HashingVectorizer(n_features=1 << 8, norm=None, ngram_range=(1, 2)).transform(
        table.column("text").to_pylist()
    )
    expected = {
        "counts": lambda: counts,
        "binary": lambda: HashingVectorizer(
            n_features=1 << 8, norm=None, ngram_range=(1, 2), binary=True, alternate_sign=False
        ).transform(table.column("text").to_pylist()),
        "l2": lambda: normalize(counts),
        "tfidf": lambda: TfidfTransformer().fit_transform(counts),
    }[weighting]()
    np.testing.assert_allclose(values, expected.toarray(), rtol=2e-6, atol=1e-6)


def facts(dataset) -> tuple:
    matrix, rows = read_back(dataset)
    return matrix.toarray().tolist(), rows.select(["row_id", "label", "split", "norm"]).to_pydict()


def test_parts_workers_and_memory_change_nothing(table, monkeypatch, tmp_path):
    pa_csv.write_csv(table, tmp_path / "t.csv")
    results = []
    for i, (part, limit, workers) in enumerate(
        [(1 << 20, "500MB", 1), (1 << 12, "500MB", 3), (1 << 13, "58MB", 2), (1 << 11, "76MB", 2)]
    ):
        monkeypatch.setattr(job_module, "SMALLEST_PART", part)
        monkeypatch.setattr(job_module, "ROWS_PER_PART", 10)
        dataset = api.ingest(
            tmp_path / "t.csv",
            tmp_path / f"{i}.bigmc",
            text="text",
            label="label",
            hash_bits=6,
            split={"a": 0.5, "b": 0.3, "c": 0.2},
            seed=7,
            memory_limit=limit,
            engine=ThreadEngine(workers),
        )
        results.append(facts(dataset))
    assert all(result == results[0] for result in results)


def test_a_shard_is_full_at_65536_rows(tmp_path):
    n = 70_000
    X = np.arange(n * 2).reshape(n, 2)
    y = np.arange(n) % 2
    dataset = api.ingest(X, tmp_path / "d.bigmc", label=y, split="all")
    assert [entry.rows for entry in read_manifest(dataset.path).shards] == [65_536, n - 65_536]
    matrix, rows = read_back(dataset)
    np.testing.assert_array_equal(matrix.toarray(), X)
    np.testing.assert_array_equal(rows.column("label").to_numpy(), y)


def test_rows_of_a_group_stay_together(table, small_parts, tmp_path):
    dataset = api.ingest(
        table, tmp_path / "d.bigmc", text="text", label="label", hash_bits=8, group="author", keep="author"
    )
    _, rows = read_back(dataset)
    pairs = set(zip(rows.column("author").to_pylist(), rows.column("split").to_pylist(), strict=True))
    assert len(pairs) == len({author for author, _ in pairs})
    assert {split for _, split in pairs} == {"train", "test"}


def test_rows_in_are_rows_stored_and_quarantined(table, small_parts, tmp_path):
    lines = table.select(["text", "size", "label", "author"]).to_pylist()
    for i in range(0, N, 50):
        lines[i] = {**lines[i], **[{"label": None}, {"size": float("nan")}, {"author": None}][i // 50 % 3]}
    dataset = api.ingest(
        pa.Table.from_pylist(lines),
        tmp_path / "d.bigmc",
        text="text",
        dense="size",
        label="label",
        group="author",
        hash_bits=8,
        on_bad_row="quarantine",
    )
    manifest = read_manifest(dataset.path)
    rejects = pq.read_table(dataset.path / "rejects.parquet")
    assert rejects.column("row_id").to_pylist() == list(range(0, N, 50))
    assert (manifest.rows_in, manifest.rows_quarantined) == (N, N // 50)
    assert dataset.n_samples == N - N // 50
    reasons = rejects.column("reason").to_pylist()[:3]
    assert reasons == ["the label is missing", "column 'size' is nan", "the group 'author' is missing"]
    _, rows = read_back(dataset)
    assert set(rows.column("row_id").to_pylist()).isdisjoint(range(0, N, 50))


def test_small_buffers_make_the_same_dataset_of_few_shards(table, tmp_path, monkeypatch):
    """A worker that must flush often writes many shards; they are merged into those of a large buffer."""
    given = {
        "text": "text", "numeric": ["size"], "label": "label", "keep": ["title"], "hash_bits": 8,
        "engine": ThreadEngine(2),
    }  # fmt: skip
    monkeypatch.setattr(job_module, "SMALLEST_PART", 1 << 13)
    monkeypatch.setattr(job_module, "ROWS_PER_PART", 100)
    large = api.ingest(table, tmp_path / "large.bigmc", **given)
    divide, merge, merged = job_module.divide, shard_placement.merge_shards, []

    def tiny(*args):
        return dataclasses.replace(divide(*args), batch_bytes=2000, buffer_bytes=500)

    def counted(folder, sources, **options):
        merged.append(len(sources))
        return merge(folder, sources, **options)

    monkeypatch.setattr(job_module, "divide", tiny)
    monkeypatch.setattr(shard_placement, "merge_shards", counted)
    messages = []
    small = api.ingest(table, tmp_path / "small.bigmc", **given, progress=messages.append)
    assert max(merged) > 14
    assert small.n_shards == large.n_shards == len(small.splits)
    assert small.splits == large.splits
    assert small.classes.tolist() == large.classes.tolist()
    assert verify(small.path) == []
    (X, rows), (expected, expected_rows) = read_back(small), read_back(large)
    assert_same_matrix(X, expected)
    assert rows.equals(expected_rows)
    told = [message for message in messages if message.stage == "merge"]
    assert told[0].done == 0
    assert told[-1].done == told[-1].total == N


def test_several_pieces_of_categories_at_once_change_no_byte(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    columns = {f"c{k}": [f"v{min(v, 900)}" for v in rng.zipf(1.2, 6000)] for k in range(3)}
    columns["c1"][100::701] = [None] * len(columns["c1"][100::701])
    source = tmp_path / "t.parquet"
    pq.write_table(pa.table({**columns, "y": rng.integers(0, 2, 6000)}), source, row_group_size=2500)
    monkeypatch.setattr(memory, "SMALLEST_BATCH", 4000)
    monkeypatch.setattr(memory, "LARGEST_BATCH", 4000)
    monkeypatch.setattr(memory, "LARGEST_CAPACITY", 64)  # names take each other's place
    transformed, sizes = part_writer.PartWriter._transformed, []

    def counting(self, batch):
        sizes[-1].append(max(1, len(batch.pieces)))
        return transformed(self, batch)

    monkeypatch.setattr(part_writer.PartWriter, "_transformed", counting)
    made = []
    for pieces in (1, 4):
        monkeypatch.setattr(part_writer, "PIECES_OF_CATEGORIES", pieces)
        sizes.append([])
        to = tmp_path / str(pieces) / "d"
        to.parent.mkdir()
        api.ingest(source, to, categorical=["c0", "c1", "c2"], label="y", on_bad_row="quarantine")
        files = sorted(path for path in to.rglob("*") if path.is_file())
        made.append({path.relative_to(to): path.read_bytes() for path in files})
    assert made[0] == made[1]
    assert max(sizes[0]) == 1
    assert max(sizes[1]) == 4
    assert sum(sizes[0]) == sum(sizes[1])
