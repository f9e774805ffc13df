"""Datasets of strangers: manifests that lie, exchanged files, links; nothing is believed unchecked."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from bigmc.errors import StoreError
from bigmc.store.block import read_block
from bigmc.store.dataset import Dataset
from bigmc.store.shards.zarr_chunks import CHUNK, ArrayWriter, Form
from bigmc.store.verify import verify

from .conftest import store_dataset


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    rng = np.random.default_rng(0)
    parts = [
        ("train", sp.random_array((300, 700), density=0.8, rng=rng).tocsr()),
        ("train", rng.normal(size=(300, 700))),
    ]
    path = tmp_path_factory.mktemp("untrusted") / "intact.bigmc"
    store_dataset(path, parts, rng.integers(0, 3, 600), [1, 2, 3])
    return path


@pytest.fixture
def copy(intact, tmp_path):
    return Path(shutil.copytree(intact, tmp_path / "copy.bigmc"))


def edit_manifest(path: Path, change) -> None:
    """Change a manifest as its author could: its checksum is right."""
    file = path / "manifest.json"
    fields = json.loads(file.read_bytes())
    fields.pop("checksum")
    change(fields)
    text = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    fields["checksum"] = hashlib.sha256(text).hexdigest()
    file.write_text(json.dumps(fields))


def list_anew(path: Path, name: str) -> None:
    """Give the manifest the size and digest that a changed file has now."""
    content = (path / name).read_bytes()

    def change(fields):
        for shard in fields["shards"]:
            for file in shard["files"]:
                if f"shards/{shard['name']}/{file[0]}" == name:
                    file[1:3] = [len(content), hashlib.sha256(content).hexdigest()]
        for file in fields["files"]:
            if file["path"] == name:
                file |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    edit_manifest(path, change)


def read_all(path: Path) -> None:
    dataset = Dataset.open(path)
    dataset.labels()
    read_block(dataset, 0, dataset.n_features)
    dataset.column_nnz()
    dataset.class_statistics(0, dataset.n_features)


def exchange(one: Path, other: Path) -> None:
    a, b = one.read_bytes(), other.read_bytes()
    one.write_bytes(b)
    other.write_bytes(a)


def two_chunks_of_equal_size():
    """Return random values of 32 bits, which do not pack."""
    return np.random.default_rng(1).integers(-(2**31), 2**31, (300, 2 * (CHUNK // 300)))


OUTSIDE = [
    "/etc/passwd",
    "../outside",
    "x/../../outside",
    "./x",
    "a//b",
    "",
    ".",
    "..",
    "a\\b",
    "a\nb",
    7,
    None,
]


@pytest.mark.parametrize("bad", OUTSIDE)
@pytest.mark.parametrize("place", ["file", "shard file", "shard", "split", "append"])
def test_paths_outside_the_folder_are_refused(place, bad, copy):
    def change(fields):
        if place == "file":
            fields["files"][0]["path"] = bad
        elif place == "shard file":
            fields["shards"][0]["files"][0][0] = bad
        elif place == "shard":
            fields["shards"][0]["name"] = bad
        elif place == "split":
            fields["splits"] = {str(bad): 300, "train": 300}
            fields["shards"][0]["split"] = bad
        else:
            fields["appends"] = [{"path": bad, "bytes": 3, "sha256": "0" * 64}]

    edit_manifest(copy, change)
    reason = (
        "is not the path of a file" if bad in (7, None, "", "a\nb") else "does not stay inside the folder"
    )
    if place in ("shard", "split"):
        reason = f"({bad!r} cannot be the name of a {place})"
    with pytest.raises(StoreError, match=re.escape(reason)):
        Dataset.open(copy)
    assert len(verify(copy)) == 1


LIES = {
    "a file twice": (lambda f: f["files"].append(f["files"][0]), "lists a file twice"),
    "a shard twice": (
        lambda f: f["shards"].append(f["shards"][0]),
        "rows of the shards are {'train': 900}, not",
    ),
    "two shards in one folder": (
        lambda f: (f["shards"].append(f["shards"][0]), f["splits"].update(train=900)),
        "lists a file twice",
    ),
    "the manifest itself": (
        lambda f: f["files"][0].update(path="manifest.json"),
        "files that are not its own",
    ),
    "a file that an append adds": (
        lambda f: f["files"][0].update(path="appends/000001/manifest.json"),
        "files that are not its own",
    ),
    "a file of a shard": (
        lambda f: f["files"][0].update(path="shards/000000/x/zarr.json"),
        "lists a file twice",
    ),
    "an append that is not the next one": (
        lambda f: f.update(
            appends=[{"path": "appends/000002/manifest.json", "bytes": 3, "sha256": "0" * 64}]
        ),
        "'appends/000002/manifest.json' is not the manifest appended as number 1",
    ),
    "no digest": (lambda f: f["files"][0].update(sha256="abc"), "'abc' is not a SHA-256"),
    "no digest of a file of a shard": (
        lambda f: f["shards"][0]["files"][0].__setitem__(2, "g" * 64),
        "g' is not a SHA-256",
    ),
    "a digest of another type": (lambda f: f["files"][0].update(sha256=None), "'None' is not a SHA-256"),
    "a negative size": (lambda f: f["files"][0].update(bytes=-1), "the size of a file is -1"),
    "a size beyond all": (lambda f: f["files"][0].update(bytes=2**63), f"the size of a file is {2**63}"),
    "a size that is no integer": (lambda f: f["files"][0].update(bytes=1.5), "the size of a file is 1.5"),
    "too many rows": (
        lambda f: f["shards"][0].update(rows=65537),
        "the number of rows of a shard is 65537, not a whole number from 0 to 65536",
    ),
    "too many rows in all places": (
        lambda f: (f["shards"][0].update(rows=65537), f["splits"].update(train=65837)),
        "the number of rows of a shard is 65537, not a whole number from 0 to 65536",
    ),
    "rows that do not add up": (
        lambda f: f["splits"].update(train=7),
        "the rows of the shards are {'train': 600}, not {'train': 7}",
    ),
    "more entries than there can be": (
        lambda f: f["shards"][0].update(nnz=210_001),
        "the number of entries of a shard is 210001, not a whole number from 0 to 210000",
    ),
    "negative entries": (
        lambda f: f["shards"][0].update(nnz=-1),
        "the number of entries of a shard is -1, not a whole number from 0 to 210000",
    ),
    "fewer entries of a dense shard": (
        lambda f: f["shards"][1].update(nnz=5),
        "the dense shard 000001 has 5 entries instead of 210000",
    ),
    "too many features": (
        lambda f: f.update(n_features=2**31),
        "n_features is 2147483648, not a whole number from 0 to 2147483647",
    ),
    "features that are no number": (lambda f: f.update(n_features=True), "n_features is True"),
    "another dtype": (
        lambda f: f["shards"][0].update(dtype="object"),
        "shard 000000 of kind sparse and dtype object",
    ),
    "another kind": (lambda f: f["shards"][0].update(kind="csr"), "shard 000000 of kind csr"),
    "an unknown type of labels": (lambda f: f.update(classes_type="pickle"), "labels of type 'pickle'"),
    "splits that are a list": (lambda f: f.update(splits=[]), "splits is []"),
    "features that are a list": (lambda f: f.update(features=[]), "features is []"),
    "a field too many": (lambda f: f.update(more=1), "'more'"),
    "a field too few": (lambda f: f.pop("splits"), "'splits'"),
    "shards that are no list": (lambda f: f.update(shards=7), "not iterable"),
    "a shard without its table": (
        lambda f: f["shards"][0]["files"].pop(),
        "the shard 000000 has no rows.parquet",
    ),
    "deep nesting": (
        lambda f: f.update(provenance=json.loads("[" * 500 + "]" * 500)),
        "not the manifest of a bigmc dataset",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_manifest_that_cannot_be_is_refused(lie, copy):
    change, reason = LIES[lie]
    edit_manifest(copy, change)
    with pytest.raises(StoreError, match=re.escape(reason)):
        Dataset.open(copy)


def test_a_manifest_nested_without_end_is_refused(copy):
    (copy / "manifest.json").write_text("[" * 100_000)
    with pytest.raises(StoreError, match="not the manifest"):
        Dataset.open(copy)


def test_exchanged_dense_chunks_of_equal_size_are_noticed(tmp_path):
    values = two_chunks_of_equal_size()
    path = tmp_path / "dense.bigmc"
    store_dataset(path, [("train", values)], np.arange(300) % 2, ["a", "b"])
    chunks = path / "shards" / "000000" / "x" / "c" / "0"
    assert (chunks / "0").stat().st_size == (chunks / "1").stat().st_size
    read_all(path)
    exchange(chunks / "0", chunks / "1")
    with pytest.raises(StoreError, match="c/0/0: its contents have changed; run bigmc verify"):
        read_all(path)


def test_a_chunk_exchanged_after_it_was_read_is_noticed(tmp_path):
    values = two_chunks_of_equal_size()
    path = tmp_path / "dense.bigmc"
    store_dataset(path, [("train", values)], np.arange(300) % 2, ["a", "b"])
    chunks = path / "shards" / "000000" / "x" / "c" / "0"
    dataset = Dataset.open(path)
    read_block(dataset, 0, dataset.n_features)
    exchange(chunks / "0", chunks / "1")
    with pytest.raises(StoreError, match="has changed since it was first read"):
        read_block(dataset, 0, dataset.n_features)


def test_stale_classes_of_equal_size_are_noticed(copy):
    file = copy / "classes.parquet"
    before = file.read_bytes()
    table = pa.table({"code": pa.array([0, 1, 2], pa.int32()), "label": pa.array([3, 1, 2], pa.int64())})
    pq.write_table(table, file, write_page_checksum=True)
    assert file.stat().st_size == len(before)
    with pytest.raises(StoreError, match=r"classes.parquet: its contents have changed; run bigmc verify"):
        Dataset.open(copy)


def test_tables_of_labels_exchanged_between_shards_are_noticed(tmp_path):
    path = tmp_path / "two.bigmc"
    parts = [("train", np.eye(4)), ("train", np.eye(4))]
    store_dataset(path, parts, [0, 1, 0, 1, 1, 0, 1, 0], ["a", "b"])
    one, other = (path / "shards" / name / "rows.parquet" for name in ("000000", "000001"))
    assert one.stat().st_size == other.stat().st_size
    exchange(one, other)
    with pytest.raises(StoreError, match=r"rows.parquet: its contents have changed"):
        Dataset.open(path).labels()


@pytest.mark.parametrize(
    "name", ["zarr.json", "statistics/train/zarr.json", "shards/000000/x/data/zarr.json"]
)
def test_small_files_are_compared(name, copy):
    text = (copy / name).read_text()
    (copy / name).write_text(text.replace("3", "4", 1))
    if name.startswith("statistics"):
        assert len(verify(copy)) == 1  # nothing reads it
    else:
        with pytest.raises(StoreError, match="its contents have changed"):
            read_all(copy)


def test_links_out_of_the_folder_are_refused(copy, tmp_path):
    outside = tmp_path / "elsewhere"
    chunk = copy / "shards" / "000000" / "x" / "data" / "c" / "0"
    shutil.move(chunk, outside)
    chunk.symlink_to(outside)
    with pytest.raises(StoreError, match=r"is a link to .*elsewhere, outside of the folder"):
        read_all(copy)
    assert verify(copy) == [f"{chunk}: is a link"]
    chunk.unlink()
    shutil.move(outside, chunk)
    folder = copy / "shards" / "000001" / "x"
    shutil.move(folder, outside)
    folder.symlink_to(outside)
    with pytest.raises(StoreError, match="outside of the folder"):
        read_all(copy)
    assert verify(copy) == [f"{folder}: is a link"]


def test_a_fifo_in_the_place_of_a_file_is_refused_not_waited_for(copy):
    import os

    chunk = copy / "shards" / "000000" / "x" / "data" / "c" / "0"
    chunk.unlink()
    os.mkfifo(chunk)
    with pytest.raises(StoreError, match="is not a file"):
        read_all(copy)
    assert len(verify(copy)) == 1


def test_what_verify_must_not_pass_over(copy):
    (copy / "shards" / "000000" / "empty").mkdir()
    (copy / "more").symlink_to("shards")
    (copy / "statistics" / "dangling").symlink_to("nowhere")
    assert sorted(verify(copy)) == [
        f"{copy}/more: is not in the manifest",
        f"{copy}/shards/000000/empty: is not in the manifest",
        f"{copy}/statistics/dangling: is not in the manifest",
    ]


def rewrite_array(path: Path, name: str, values) -> None:
    """Write other values into an array of a shard, as the author of a hostile dataset would."""
    shard = path / "shards" / "000000"
    folder = shard / "x" / name
    before = {p.relative_to(path).as_posix() for p in folder.rglob("*") if p.is_file()}
    shutil.rmtree(folder)
    chunk = 1 << 16 if name == "indptr" else CHUNK
    form = Form.PLAIN if name == "data" else Form.DIFFERENCES
    writer = ArrayWriter(folder, shard, values.shape, values.dtype, form=form, chunk=chunk)
    writer.append(values)
    writer.close()
    for file in before:
        list_anew(path, file)


@pytest.mark.parametrize("other", ["type", "length"])
def test_arrays_of_another_type_or_length_than_the_manifest_says_are_refused(other, copy):
    shard = Dataset.open(copy).shards[0]
    assert shard.dtype != np.int16
    values = np.empty(shard.nnz, shard.dtype)
    shard.read(0, shard.nnz, None, values)
    rewrite_array(copy, "data", values[:-1] if other == "length" else values.astype(np.int16))
    with pytest.raises(StoreError, match=r"has the shape .* and dtype .*, not"):
        read_all(copy)


@pytest.mark.parametrize("lie", ["decreasing", "beyond", "negative", "a column longer than there are rows"])
def test_offsets_that_are_none_are_refused(lie, copy):
    dataset = Dataset.open(copy)
    indptr = dataset.shards[0].indptr(0, 700).astype(np.int32)
    if lie == "decreasing":
        indptr[5], indptr[6] = indptr[6], indptr[5]
    elif lie == "beyond":
        indptr[-1] += 1000
    elif lie == "negative":
        indptr[0] = -5
    else:
        indptr[1:9] = indptr[9]
    rewrite_array(copy, "indptr", indptr)
    with pytest.raises(StoreError, match="its offsets are not those of columns"):
        read_all(copy)


def test_rows_that_are_not_there_are_refused(copy):
    dataset = Dataset.open(copy)
    indices = np.empty(dataset.shards[0].nnz, np.uint16)
    dataset.shards[0].read(0, len(indices), indices, None)
    indices[1000] = 300
    rewrite_array(copy, "indices", indices)
    with pytest.raises(StoreError, match="names rows beyond the 300 there are"):
        read_all(copy)


@pytest.mark.parametrize("change", ["beyond", "null", "another type", "fewer"])
def test_labels_that_are_none_are_refused(change, copy):
    name = "shards/000000/rows.parquet"
    table = pq.read_table(copy / name)
    labels = table.column("label").to_numpy().copy()
    column = pa.array(labels)
    if change == "beyond":
        labels[3] = 3
        column = pa.array(labels)
    elif change == "null":
        column = pa.array([None, *labels[1:].tolist()], pa.int32())
    elif change == "another type":
        column = pa.array(labels.astype(np.float32))
    table = table.set_column(table.column_names.index("label"), "label", column)
    pq.write_table(table[:200] if change == "fewer" else table, copy / name)
    list_anew(copy, name)
    with pytest.raises(
        ValueError, match=r"outside the 3 classes|not as bigmc writes|200 rows instead of 300"
    ):
        read_all(copy)


@pytest.mark.parametrize("chunk", [[1 << 40], [0], [-5], [10, 10]], ids=str)
def test_a_chunk_that_would_not_fit_into_memory_or_holds_nothing_is_refused(copy, chunk):
    name = "shards/000000/x/data/zarr.json"
    fields = json.loads((copy / name).read_bytes())
    fields["chunk_grid"]["configuration"]["chunk_shape"] = chunk
    (copy / name).write_text(json.dumps(fields))
    list_anew(copy, name)
    with pytest.raises(StoreError, match="does not describe an array as bigmc writes it"):
        read_all(copy)


@pytest.mark.parametrize("weighting", [{}, {"bm25": True}, {"l2": 1}, ["l2"], "l2", None])
def test_an_unknown_weighting_is_refused_with_the_name_of_the_file(weighting, copy):
    edit_manifest(copy, lambda fields: fields.update(weighting=weighting))
    with pytest.raises(StoreError, match=r"copy\.bigmc/manifest\.json: (the weighting .* is|not a man)"):
        Dataset.open(copy)
