"""A manifest appears when every file it lists is on disk."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np

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
