"""Small shards of parts are merged, several at once where memory allows, with the same bytes."""

import hashlib

import pytest

from bigmc import api
from bigmc.engine import ThreadEngine
from bigmc.ingestion.writing import shard_placement


@pytest.fixture
def sources(tmp_path):
    """Return files each of which is a part, so that either split has three shards to merge."""
    for number in range(3):
        rows = "".join(f"a{i % 97} b{i * i % 89} c{number},{i % 3}\n" for i in range(9000))
        (tmp_path / f"{number}.csv").write_text("text,label\n" + rows)
    return sorted(tmp_path.glob("*.csv"))


def ingested(sources, to, n_threads):
    options = {"text": "text", "label": "label", "hash_bits": 10, "memory_limit": "1GB"}
    api.ingest(sources, to, engine=ThreadEngine(n_threads), **options)
    return {
        str(file.relative_to(to)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(to.rglob("*"))
        if file.is_file()
    }


def watch_memory(monkeypatch):
    """Return the bytes that each merge is allowed from now on."""
    merge, allowed = shard_placement.merge_shards, []

    def watched(folder, sources, *, memory):
        allowed.append(memory)
        return merge(folder, sources, memory=memory)

    monkeypatch.setattr(shard_placement, "merge_shards", watched)
    return allowed


def test_merges_get_the_same_memory_with_any_number_of_threads(tmp_path, sources, monkeypatch):
    """The row groups of a table follow from this memory."""
    allowed = watch_memory(monkeypatch)
    one = ingested(sources, tmp_path / "one.bigmc", 1)
    assert len(allowed) == 2  # a shard of each split
    assert ingested(sources, tmp_path / "two.bigmc", 2) == one
    assert allowed[:2] == allowed[2:]


def test_a_merge_that_fails_beside_another_is_made_by_the_next_run(tmp_path, sources, monkeypatch):
    expected = ingested(sources, tmp_path / "expected.bigmc", 1)
    merge = shard_placement.merge_shards

    def failing(folder, sources, *, memory):
        if folder.name.endswith("0"):
            raise OSError("no space left")
        return merge(folder, sources, memory=memory)

    with monkeypatch.context() as patched:
        patched.setattr(shard_placement, "merge_shards", failing)
        with pytest.raises(OSError, match="no space left"):
            ingested(sources, tmp_path / "again.bigmc", 2)
    assert ingested(sources, tmp_path / "again.bigmc", 2) == expected
