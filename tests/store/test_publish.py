"""A manifest appears when every file it lists is on disk."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from bigmc.store import publish
from bigmc.store.block import read_block
from bigmc.store.files.layout import read_manifest

from .conftest import store_dataset


def test_every_file_is_synced_before_a_manifest_lists_it(tmp_path, monkeypatch):
    to = tmp_path / "d.bigmc"
    fsync, replace = os.fsync, os.replace
    synced: set[int] = set()
    when_listed: list[set[int]] = []

    def note(descriptor):
        synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def listed(source, target, **options):
        if os.path.basename(target) == "manifest.json":
            when_listed.append(set(synced))
        replace(source, target, **options)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "replace", listed)
    X = np.random.default_rng(0).poisson(0.5, (40, 6)).astype(float)
    store_dataset(to, [("train", X[:30]), ("test", X[30:])], np.arange(40) % 3, ["a", "b", "c"])
    (before,) = when_listed
    manifest = read_manifest(to)
    files = [to / file.path for file in manifest.files]
    files += [to / "shards" / shard.name / file.path for shard in manifest.shards for file in shard.files]
    assert len(files) > 20
    assert [path for path in files if path.stat().st_ino not in before] == []


def test_a_manifest_says_that_labels_are_sets(tmp_path):
    dataset = store_dataset(tmp_path / "d.bigmc", [("train", np.eye(6, 4))], np.arange(6) % 2, ["a", "b"])
    manifest = dataset.ingests[0].manifest
    for sets in (True, False):
        (tmp_path / "manifest.json").write_bytes(replace(manifest, label_sets=sets).to_json())
        assert read_manifest(tmp_path) == replace(manifest, label_sets=sets)
    assert b"label_sets" not in (tmp_path / "manifest.json").read_bytes()  # as before there were any


def test_files_of_an_earlier_attempt_are_removed(tmp_path):
    to = tmp_path / "d.bigmc"
    earlier = [to / ".gone.parquet.0123456789ab.partial", to / "shards" / "000007" / "zarr.json"]
    for path in earlier:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{")
    X = np.random.default_rng(0).poisson(0.5, (12, 6)).astype(float)
    dataset = store_dataset(to, [("train", X)], np.arange(12) % 3, ["a", "b", "c"])
    assert dataset.n_samples == 12
    assert not list(to.rglob("*.partial"))
    assert [path.name for path in (to / "shards").iterdir()] == ["000000"]


@pytest.mark.parametrize("n_threads", [1, 3])
def test_statistics_are_summed_up_within_the_memory(n_threads, tmp_path, monkeypatch):
    """Every thread has a block: they take no more than half the memory, and there are two for each thread."""
    X = sp.random_array((500, 60), density=0.5, rng=np.random.default_rng(0)).tocsr()
    sizes = []

    def read(*given):
        block = read_block(*given)
        sizes.append(block.nbytes)
        return block

    monkeypatch.setattr(publish, "read_block", read)
    for memory in (40_000, 1 << 30):
        sizes.clear()
        to = tmp_path / f"{memory}.bigmc"
        dataset = store_dataset(
            to, [("train", X)], np.arange(500) % 3, ["a", "b", "c"], memory_limit=memory, n_threads=n_threads
        )
        assert max(sizes) * n_threads <= memory / 2
        assert len(sizes) >= (2 * n_threads if n_threads > 1 else 1)
        assert sum(sizes) >= dataset.decoded_bytes
    assert n_threads > 1 or len(sizes) == 1  # all at once, with enough memory


@pytest.mark.parametrize(("n_features", "stored"), [(20, True), (21, False)])
def test_statistics_of_more_features_than_are_worth_it_are_not_stored(
    n_features, stored, tmp_path, monkeypatch
):
    monkeypatch.setattr(publish, "SMALL_ENTRIES", 20)
    monkeypatch.setattr(publish, "SMALL_SHARE", 0)
    X = np.random.default_rng(0).normal(size=(6, n_features))
    store_dataset(tmp_path / "d.bigmc", [("train", X)], np.arange(6) % 2, ["a", "b"])
    assert (tmp_path / "d.bigmc" / "statistics").exists() == stored
