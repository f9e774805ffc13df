"""What is wrong with a dataset is found and named: file by file, harm by harm."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from bigmc.errors import BusyError, StoreError
from bigmc.store.dataset import Dataset
from bigmc.store.files.atomic import exclusive, write_atomic
from bigmc.store.files.checkpoint import LITTLE_TIME, FileCheckpoint
from bigmc.store.verify import verify

from .conftest import store_dataset


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    rng = np.random.default_rng(0)
    parts = [
        ("train", sp.random_array((300, 700), density=0.8, rng=rng).tocsr()),
        ("test", rng.normal(size=(200, 700))),
    ]
    path = tmp_path_factory.mktemp("damage") / "intact.bigmc"
    store_dataset(path, parts, rng.integers(0, 3, 500), [1, 2, 3])
    (path / "wip").mkdir()
    (path / "wip" / "lock").touch()
    return path


@pytest.fixture
def copy(intact, tmp_path):
    return Path(shutil.copytree(intact, tmp_path / "copy.bigmc"))


def every_file(path):
    return sorted(p for p in path.rglob("*") if p.is_file() and "wip" not in p.parts)


def test_an_intact_dataset_has_no_problems(intact):
    assert verify(intact) == []
    assert verify(str(intact), n_workers=1) == []
    assert len(every_file(intact)) > 25


@pytest.mark.parametrize("harm", ["flip", "cut", "delete"])
def test_harm_to_any_file_is_found(harm, copy):
    for path in every_file(copy):
        content = path.read_bytes()
        if harm == "flip":
            middle = len(content) // 2
            path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        elif harm == "cut":
            path.write_bytes(content[:-1])
        else:
            path.unlink()
        problems = verify(copy)
        assert len(problems) == 1, path
        if path.name == "manifest.json" and harm == "delete":
            assert problems == [f"{copy}: ingest not finished; rerun the same bigmc ingest command"]
        else:
            assert problems[0].startswith(str(path)), path
        path.write_bytes(content)
    assert verify(copy) == []


def test_a_file_where_a_folder_should_be_is_found(copy):
    shutil.rmtree(copy / "statistics")
    (copy / "statistics").touch()
    problems = verify(copy)
    assert len(problems) > 10
    inside, why = f"{copy / 'statistics'}{os.sep}", "cannot be read (Not a directory)"
    assert all(line.startswith(inside) and line.endswith(why) for line in problems)


def test_exchanged_chunks_are_found(copy):
    chunks = copy / "shards" / "000000" / "x" / "indices" / "c"
    first, second = chunks / "0", chunks / "1"
    a, b = first.read_bytes(), second.read_bytes()
    first.write_bytes(b)
    second.write_bytes(a)
    problems = verify(copy)
    assert [p.split(":")[0] for p in problems] == [str(first), str(second)]


def test_edited_metadata_is_found(copy):
    for path in every_file(copy):
        if path.name == "zarr.json":
            content = path.read_bytes()
            fields = json.loads(content)
            fields["attributes"]["bigmc"] = {"n_features": 9}
            path.write_text(json.dumps(fields))
            assert [p.split(":")[0] for p in verify(copy)] == [str(path)]
            path.write_bytes(content)
    manifest = copy / "manifest.json"
    fields = json.loads(manifest.read_bytes())
    fields["n_features"] = 701
    manifest.write_text(json.dumps(fields))
    assert verify(copy) == [f"{manifest}: edited or damaged: its checksum does not match; run bigmc verify"]
    with pytest.raises(StoreError, match="edited or damaged"):
        Dataset.open(copy)


@pytest.mark.parametrize("place", ["more", "shards/000000/x/data/c/99", "statistics/x/y", "shards/000007/a"])
def test_an_additional_file_is_found(place, copy):
    (copy / place).parent.mkdir(parents=True, exist_ok=True)
    (copy / place).touch()
    assert verify(copy) == [f"{copy / place}: is not in the manifest"]


def test_what_cannot_be_opened_says_why(intact, copy, tmp_path):
    with pytest.raises(StoreError, match=f"^there is no dataset at {tmp_path}/nowhere; check the path"):
        Dataset.open(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match=r"is not a bigmc dataset: it has no manifest.json"):
        Dataset.open(tmp_path / "empty")
    with pytest.raises(StoreError, match="is a file, not a bigmc dataset"):
        Dataset.open(copy / "manifest.json")
    manifest = copy / "manifest.json"
    fields = json.loads(manifest.read_bytes())
    manifest.write_text(json.dumps({**fields, "version": 7}))
    with pytest.raises(StoreError, match="was made by format version 7; this bigmc reads 1 to 2"):
        Dataset.open(copy)
    assert len(verify(copy)) == 1
    manifest.unlink()
    with pytest.raises(StoreError, match="ingest not finished; rerun the same bigmc ingest command"):
        Dataset.open(copy)


def test_sizes_are_looked_at_before_a_shard_is_read(copy):
    path = copy / "shards" / "000001" / "x" / "c" / "0" / "1"
    path.write_bytes(path.read_bytes() + b"x")
    dataset = Dataset.open(copy)
    dataset["train"].labels()
    with pytest.raises(StoreError, match=r"c/0/1: has \d+ bytes instead of \d+; run bigmc verify"):
        dataset.labels()


def test_finishing_again_clears_what_an_earlier_attempt_left(tmp_path):
    path = tmp_path / "d.bigmc"

    def make():
        return store_dataset(path, [("all", np.eye(4))], [0, 1, 0, 1], ["a", "b"])

    first = {p: p.read_bytes() for p in every_file(make().path)}
    (path / "shards" / "000009.partial").mkdir()
    (path / "shards" / "000001").mkdir()
    (path / "statistics" / "old").mkdir()
    (path / ".manifest.json.x.partial").touch()
    make()
    assert {p: p.read_bytes() for p in every_file(path)} == first  # equal data make equal bytes
    assert verify(path) == []


KILLED = """
import os, signal, sys
import numpy as np
sys.path.insert(0, {tests!r})
from store.conftest import store_dataset
from pathlib import Path
names, calls = {names!r}, 0
def kill(*_):
    global calls
    calls += 1
    if calls > {after}:
        os.kill(os.getpid(), signal.SIGKILL)
for name in names:
    real = getattr(os, name)
    setattr(os, name, lambda *a, real=real, **k: (kill(), real(*a, **k))[1])
parts = [("all", np.eye(4)), ("all", np.ones((3, 4)))]
store_dataset(Path({path!r}), parts, [0, 1, 0, 1, 0, 1, 1], ["a", "b"])
"""


@pytest.mark.exhaustive(keep=2)
@pytest.mark.parametrize("after", [0, 3, 5, 99])
def test_a_process_killed_at_a_commit_leaves_no_dataset_and_a_rerun_makes_one(after, tmp_path):
    path = tmp_path / "k.bigmc"
    tests = str(Path(__file__).parents[1])
    script = KILLED.format(tests=tests, names=["replace"], after=after, path=str(path))
    done = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[2], check=False)
    if after == 99:  # nothing left to kill
        assert done.returncode == 0
        assert verify(path) == []
        return
    assert done.returncode == -signal.SIGKILL
    with pytest.raises(StoreError, match="ingest not finished"):
        Dataset.open(path)
    parts = [("all", np.eye(4)), ("all", np.ones((3, 4)))]
    store_dataset(path, parts, [0, 1, 0, 1, 0, 1, 1], ["a", "b"])
    assert verify(path) == []


def test_exclusive_refuses_another_process_and_ends_with_it(tmp_path):
    lock = tmp_path / "d.bigmc" / "wip" / "lock"
    script = f"""
from pathlib import Path
from bigmc.store.files.atomic import exclusive
with exclusive(Path({str(lock)!r})):
    print("held", flush=True)
    input()
"""
    command = [sys.executable, "-c", script]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BusyError, match=r"another process is writing .*d\.bigmc"), exclusive(lock):
            pass
        os.kill(holder.pid, signal.SIGKILL)
    with exclusive(lock), pytest.raises(BusyError), exclusive(lock):
        pass
    with exclusive(lock):
        pass


def test_write_atomic_leaves_the_old_file_when_it_fails(tmp_path, monkeypatch):
    path = tmp_path / "f"
    write_atomic(path, b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space"):
            write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o644


def test_checkpoint_round_trip(tmp_path):
    checkpoint = FileCheckpoint(tmp_path / "run")
    assert checkpoint.load() is None
    state = np.random.default_rng(3).bit_generator.state
    meta = {"pass": 3, "rng": state, "gap": 0.1 + 0.2, "big": 2**100}
    arrays = {"coef": np.arange(6.0).reshape(2, 3), "features": np.array([4, 1]), "meta": np.array([True])}
    checkpoint.save(meta, arrays)
    checkpoint.save({**meta, "pass": 4}, arrays)
    read_meta, read_arrays = FileCheckpoint(tmp_path / "run").load()
    assert read_meta == {**meta, "pass": 4}
    assert read_arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        assert read_arrays[name].dtype == array.dtype
        assert np.array_equal(read_arrays[name], array)
    with pytest.raises(ValueError, match="not Python objects"):
        checkpoint.save({}, {"bad": np.array([{}], dtype=object)})
    assert checkpoint.load()[0]["pass"] == 4  # a save that fails leaves the state before
    assert len(list((tmp_path / "run").iterdir())) == 1
    checkpoint.clear()
    checkpoint.clear()
    assert checkpoint.load() is None


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "pickle"])
def test_a_damaged_checkpoint_is_named_with_its_cure(harm, tmp_path):
    checkpoint = FileCheckpoint(tmp_path)
    checkpoint.save({"pass": 3}, {"coef": np.arange(1000.0)})
    content = checkpoint.path.read_bytes()
    if harm == "flip":
        content = content[:5000] + bytes([content[5000] ^ 1]) + content[5001:]
    elif harm == "cut":
        content = content[:-40]
    elif harm == "empty":
        content = b""
    checkpoint.path.write_bytes(content)
    if harm == "pickle":
        with open(checkpoint.path, "wb") as file:
            np.save(file, np.array([{}], dtype=object))
    with pytest.raises(StoreError, match=r"checkpoint\.npz is damaged.*; delete it to start over"):
        checkpoint.load()


def test_a_checkpoint_of_little_time_skips_states_that_follow_at_once(tmp_path, monkeypatch):
    """Saving takes one second of this clock: the next state is saved 49 seconds later at the earliest."""
    clock = iter([0.0, 1.0, 2.0, 49.9, 50.1, 51.1])
    own = SimpleNamespace(monotonic=lambda: next(clock))  # other threads ask the real one
    monkeypatch.setattr("bigmc.store.files.checkpoint.time", own)
    checkpoint = FileCheckpoint(tmp_path, share_of_time=LITTLE_TIME)
    kept = []
    for number in range(4):
        checkpoint.save({"number": number}, {})
        kept.append(FileCheckpoint(tmp_path).load()[0]["number"])
    assert kept == [0, 0, 0, 3]


def test_labels_of_another_dataset_in_its_place_are_not_read(tmp_path):
    """The first reading was checked, and later ones took whatever rows were there, if they were as many."""
    rng = np.random.default_rng(0)
    rows = [("train", sp.random_array((30, 40), density=0.5, rng=rng).tocsr())]
    place, other = tmp_path / "d.bigmc", tmp_path / "other.bigmc"
    for path, labels in (place, [0, 1] * 15), (other, [1, 0] * 15):
        store_dataset(path, rows, np.array(labels), ["no", "yes"])
    dataset = Dataset.open(place)
    assert dataset.labels().tolist() == [0, 1] * 15
    shutil.copytree(place, tmp_path / "same.bigmc")
    place.rename(tmp_path / "old.bigmc")
    (tmp_path / "same.bigmc").rename(place)
    assert dataset.labels().tolist() == [0, 1] * 15
    shutil.rmtree(place)
    other.rename(place)
    with pytest.raises(StoreError, match=r"rows\.parquet: its contents have changed; run bigmc verify"):
        dataset.labels()
