"""Object stores, as fsspec keeps one in memory: the same files as on a disk, brought when they are read."""

import shutil
from contextlib import suppress

import fsspec
import numpy as np
import pytest

from bigmc import api
from bigmc.engine import ThreadEngine
from bigmc.errors import DataError, StoreError
from bigmc.store.block import read_block
from bigmc.store.dataset import Dataset
from bigmc.store.files.layout import FileEntry, read_manifest
from bigmc.store.files.object_store import Address, built, find, local_file, publish, read_file
from bigmc.store.files.outputs import IfExists, Output
from bigmc.store.files.receipt import Receipt
from bigmc.store.verify import verify

from .conftest import store_dataset


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """Return the address of an empty bucket; local copies are in ``cache``."""
    monkeypatch.setenv("BIGMC_CACHE", str(tmp_path / "cache"))
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
    return "memory://bucket"


def test_a_path_is_read_and_written_where_it_is(tmp_path):
    path = tmp_path / "file"
    assert read_file(path) is None
    assert read_file(tmp_path) is None
    for content in (b"one", b"other"):
        with built(path) as there:
            there.write_bytes(content)
        assert read_file(str(path)) == content
        with local_file(path) as there:
            assert there == path


def test_objects_are_written_read_and_removed(bucket, tmp_path):
    address = Address(f"{bucket}/folder/")
    assert address.url == f"{bucket}/folder"
    assert address.read("one") is None
    assert not Address(f"{bucket}/folder/one").exists()
    address.write(b"1", "one")
    address.write(b"first", "one")
    assert address.create(b"22", "two")
    assert not address.create(b"again", "two")
    (tmp_path / "three").write_bytes(b"333")
    Address(f"{bucket}/folder/three").put(tmp_path / "three")
    assert [address.read(name) for name in ("one", "two", "three")] == [b"first", b"22", b"333"]
    assert Address(f"{bucket}/folder/one").exists()
    assert Address(bucket).sizes("folder") == {"one": 5, "two": 2, "three": 3}
    # of sha256sum
    assert address.digest("one").startswith("a7937b64b8caa58f")
    address.remove("")
    assert Address(bucket).sizes("folder") == {}


def test_files_are_sent_and_brought_whole_and_compared(bucket, tmp_path):
    address, names = Address(bucket), [f"{i % 3}/{i}" for i in range(70)]
    for i, name in enumerate(names):
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_bytes(bytes(i))
    address.send(tmp_path / "out", "data", names)
    assert address.sizes("data") == {name: i for i, name in enumerate(names)}
    files = [FileEntry(name, i, address.digest(f"data/{name}")) for i, name in enumerate(names)]
    (tmp_path / "back").mkdir()
    address.bring("data", tmp_path / "back", files)
    assert [(tmp_path / "back" / name).read_bytes() for name in names] == [bytes(i) for i in range(70)]
    address.write(b"x" * 5, f"data/{names[5]}")
    (tmp_path / "bad").mkdir()
    with pytest.raises(StoreError, match=f"memory://bucket/data/{names[5]} does not match the manifest"):
        address.bring("data", tmp_path / "bad", files[:10])
    assert not (tmp_path / "bad" / names[5]).exists()


def made(path, seed=0):
    rng = np.random.default_rng(seed)
    parts = [("train", rng.random((30, 8))), ("test", rng.random((20, 8)))]
    return store_dataset(path, parts, rng.integers(0, 2, 50), ["a", "b"])


def content_of(dataset):
    return read_block(dataset, 0, dataset.n_features).data.tobytes(), dataset.labels().tobytes()


def test_a_published_dataset_is_read_as_from_a_disk(bucket, tmp_path):
    there = f"{bucket}/d.bigmc"
    local, other = made(tmp_path / "d.bigmc"), made(tmp_path / "other.bigmc", 1)
    shutil.copytree(local.path, tmp_path / "sent")
    seen = []
    assert publish(tmp_path / "sent", there, seen.append)
    assert not (tmp_path / "sent").exists()
    assert (
        seen[-1].done == seen[-1].total == sum(file.bytes for file in read_manifest(local.path).all_files())
    )
    objects = Address(there).sizes("")
    for _ in range(2):
        found = Dataset.open(there)
        assert found.identity == local.identity
        assert content_of(found) == content_of(local)
        assert verify(there) == []
        shutil.rmtree(tmp_path / "cache")  # as on another machine
    shutil.copytree(local.path, tmp_path / "again")
    seen.clear()
    assert publish(tmp_path / "again", there, seen.append)
    assert not seen  # all of it is there
    assert not publish(other.path, there)
    assert not other.path.exists()
    assert Address(there).sizes("") == objects
    assert content_of(Dataset.open(there)) == content_of(local)


def test_an_interrupted_upload_sends_what_is_missing(bucket, tmp_path):
    there = f"{bucket}/d.bigmc"
    local = made(tmp_path / "d.bigmc")
    shutil.copytree(local.path, tmp_path / "kept")
    publish(tmp_path / "kept", there)
    sizes = Address(there).sizes("")
    Address(there).remove("manifest.json")
    lost = max((name for name in sizes if name != "manifest.json"), key=sizes.get)
    Address(there).remove(lost)
    with pytest.raises(StoreError, match=f"there is no dataset at {there}"):
        Dataset.open(there)
    seen = []
    publish(local.path, there, lambda p: seen.append(p.done))
    assert len(seen) == 1
    assert Address(there).sizes("") == sizes


def test_appended_rows_are_those_of_one_ingest(bucket, tmp_path):
    options = {"text": "text", "label": "label", "hash_bits": 6, "split": {"train": 1.0}}
    options |= {"memory_limit": "64MB", "engine": ThreadEngine(1)}
    rng = np.random.default_rng(0)
    for day in range(3):
        lines = (f"{' '.join(rng.choice(60, 6).astype(str))} w,{c}\n" for c in rng.choice([*"xyz"], 20))
        (tmp_path / f"{day}.csv").write_text("text,label\n" + "".join(lines))
    for to in (f"{bucket}/d.bigmc", tmp_path / "d.bigmc"):
        for day in range(3):
            api.ingest(tmp_path / f"{day}.csv", to, append=day > 0, **options)
    found, local = Dataset.open(f"{bucket}/d.bigmc"), Dataset.open(tmp_path / "d.bigmc")
    assert found.n_samples == local.n_samples == 60
    assert content_of(found) == content_of(local)
    assert verify(f"{bucket}/d.bigmc") == []
    assert [len(find(f"{bucket}/d.bigmc", most)) for most in (None, 0, 1, 2, 3)] == [3, 1, 2, 3, 3]
    appended = Address(f"{bucket}/d.bigmc/appends/000001").sizes("")
    assert "manifest.json" in appended
    content = Address(f"{bucket}/d.bigmc/appends/000001").read("manifest.json")
    Address(f"{bucket}/d.bigmc/appends/000001").write(content[:-1], "manifest.json")
    with pytest.raises(StoreError):
        Dataset.open(f"{bucket}/d.bigmc")


def test_a_file_is_made_aside_and_created_once(bucket, tmp_path):
    there = f"{bucket}/m.model"
    with pytest.raises(StoreError, match="there is nothing at"), local_file(there):
        pass
    with suppress(ZeroDivisionError), built(there) as path:
        path.write_bytes(b"half")
        raise ZeroDivisionError
    assert read_file(there) is None
    with built(there) as path:
        assert path.read_bytes() == b"half"  # what was made goes on
        path.write_bytes(b"whole")
    assert read_file(there) == b"whole"
    with local_file(there) as path:
        assert (path.name, path.read_bytes()) == ("m.model", b"whole")
    assert not path.exists()
    with built(there) as path:
        assert path.read_bytes() == b"whole"
        path.write_bytes(b"other")
    assert read_file(there) == b"other"
    assert not path.parent.exists()
    Address(there).remove("")
    made = built(there)
    made.__enter__().write_bytes(b"mine")
    Address(there).write(b"theirs")
    with pytest.raises(StoreError, match="another process has already written"):
        made.__exit__(None, None, None)
    assert read_file(there) == b"theirs"


def test_results_are_delivered_with_their_receipt(bucket, tmp_path):
    output = Output.at(f"{bucket}/p.parquet")
    assert not output.exists()
    assert output.content() is None
    output.write_new(b"one", IfExists.REFUSE)
    output.write_new(b"one", IfExists.REFUSE)
    with pytest.raises(DataError, match=r"p\.parquet"):
        output.write_new(b"two", IfExists.REFUSE)
    output.write_new(b"two", IfExists.REPLACE)
    assert output.exists()
    assert output.content() == read_file(output.name) == b"two"
    with pytest.raises(DataError, match=r"p\.parquet"):
        output.refuse_existing(IfExists.REFUSE)
    output.refuse_existing(IfExists.REPLACE)
    (tmp_path / "result").write_bytes(b"three")
    (tmp_path / "rejects").write_bytes(b"bad rows")
    receipt = Receipt({"command": "predict"}, Address(output.name).digest(""), {"n": 3})
    output.deliver(tmp_path / "result", receipt, tmp_path / "rejects")
    assert output.content() == b"three"
    assert read_file(f"{bucket}/p.parquet.rejects.parquet") == b"bad rows"
    assert output.receipt() is None  # of other contents than those there are
    receipt = Receipt({"command": "predict"}, Address(output.name).digest(""), {"n": 3})
    output.deliver(tmp_path / "result", receipt)
    assert output.receipt() == receipt


def test_what_is_wrong_with_the_objects_of_a_dataset(bucket, tmp_path):
    there = f"{bucket}/d.bigmc"
    local = made(tmp_path / "d.bigmc")
    publish(local.path, there)
    data, *_ = {name.split("/")[0] for name in Address(there).sizes("")} - {"manifest.json"}
    sizes = Address(there).sizes(data)
    short, changed, missing = sorted(name for name in sizes if name.startswith("shards/"))[:3]
    Address(there).write(b"", f"{data}/{short}")
    Address(there).write(bytes(sizes[changed]), f"{data}/{changed}")
    Address(there).remove(f"{data}/{missing}")
    Address(there).write(b"more", f"{data}/more")
    assert sorted(verify(there)) == sorted(
        [
            f"{there}/{data}/{short}: has 0 bytes instead of {sizes[short]}",
            f"{there}/{data}/{changed}: its contents have changed",
            f"{there}/{data}/{missing}: is missing",
            f"{there}/{data}/more: is not in the manifest",
        ]
    )
    assert verify(f"{bucket}/absent") == [
        f"there is no dataset at {bucket}/absent; check the address, or make it with bigmc ingest"
    ]
