"""Local copies of datasets in object stores: which go when there is no room, and which never."""

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import bigmc
from bigmc.errors import BigmcError
from bigmc.store.files import cache
from bigmc.store.files.cache import open_copy


@pytest.fixture(autouse=True)
def copies(tmp_path, monkeypatch):
    monkeypatch.setenv("BIGMC_CACHE", str(tmp_path))
    monkeypatch.setenv("BIGMC_CACHE_SIZE", "10KB")
    return tmp_path / "copies"


def made(name, n_bytes, opened):
    """Make a copy of so many bytes that was opened at a time, and is read no more."""
    copy = open_copy(name)
    (copy.folder / "x").mkdir()
    (copy.folder / "x" / "data").write_bytes(bytes(n_bytes))
    lock = copy.folder.with_name(f"{name}.lock")
    del copy
    os.utime(lock, (opened, opened))


def names(copies):
    return sorted(path.name for path in copies.iterdir() if path.is_dir())


def test_the_copies_opened_longest_ago_go_first(copies):
    for name, opened in (("a", 30), ("b", 10), ("c", 20), ("d", 40)):
        made(name, 2000, opened)
    copy = open_copy("new")
    copy.make_room(2000)
    assert names(copies) == ["a", "b", "c", "d", "new"]  # 10 KB are allowed
    copy.make_room(5000)
    assert names(copies) == ["a", "d", "new"]
    copy.make_room(0)
    assert names(copies) == ["a", "d", "new"]
    assert not [*copies.glob("b*"), *copies.glob("c*"), *copies.glob(".*")]


def test_room_is_made_for_more_than_is_asked(copies, monkeypatch):
    counted = []
    monkeypatch.setattr(cache.os, "walk", lambda folder: counted.append(folder) or [])
    copy = open_copy("a")
    for _ in range(60):
        copy.make_room(100)
    assert len(counted) == 10  # a sixteenth of 10 KB each time


def test_looking_for_room_opens_no_file_for_good(copies):
    """A process that meets copies in use again and again keeps no handle of their locks."""
    used = open_copy("used")
    (used.folder / "data").write_bytes(bytes(9000))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        open_copy("used").make_room(50_000)
    assert names(copies) == ["used"]
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_is_read_stays(copies):
    made("old", 4000, 10)
    made("other", 4000, 20)
    script = "from bigmc.store.files.cache import open_copy; c = open_copy('old'); print(1); input()"
    env = {**os.environ, "PYTHONPATH": str(Path(bigmc.__file__).parents[1])}
    reader = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    )
    assert reader.stdout.readline() == b"1\n"
    mine, again = open_copy("mine"), open_copy("mine")
    assert again is mine
    made("more", 4000, 30)
    mine.make_room(50_000)  # more than is allowed: what is read goes on
    assert names(copies) == ["mine", "old"]
    reader.kill()
    reader.wait()
    del mine, again
    gc.collect()
    open_copy("new").make_room(50_000)
    assert names(copies) == ["new"]


def test_a_copy_removed_by_hand_is_made_anew(copies):
    before = open_copy("a")
    cache.remove_tree(copies)
    copy = open_copy("a")
    assert copy is not before
    assert copy.folder.is_dir()
    open_copy("b").make_room(50_000)
    assert names(copies) == ["a", "b"]


def test_a_reader_that_comes_while_a_copy_is_removed(copies, monkeypatch):
    made("a", 4000, 10)
    whole, opened = cache.remove_tree, []
    reader = threading.Thread(target=lambda: opened.append(open_copy("a")))

    def removed(folder):
        reader.start()
        reader.join(0.2)
        assert not opened  # it waits
        whole(folder)

    other = open_copy("b")
    monkeypatch.setattr(cache, "remove_tree", removed)
    other.make_room(50_000)
    reader.join()
    assert opened[0].is_there
    assert not [*opened[0].folder.iterdir()]


def test_what_a_killed_process_left_half_removed_goes(copies):
    made("a", 10, 10)
    (copies / ".b.partial").mkdir()
    open_copy("a").make_room(1)
    assert not (copies / ".b.partial").exists()


def test_by_default_half_of_the_disk(copies, monkeypatch):
    monkeypatch.delenv("BIGMC_CACHE_SIZE")
    made("a", 3000, 10)
    usage = type("usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
    open_copy("b").make_room(100)
    assert names(copies) == ["b"]
    usage.free = 10_000
    made("a", 3000, 10)
    open_copy("b").make_room(100)
    assert names(copies) == ["a", "b"]
    usage.free = 4000
    open_copy("b").make_room(1000)  # more than what was left of the last room
    assert names(copies) == ["b"]
    monkeypatch.setenv("BIGMC_CACHE_SIZE", "much")
    with pytest.raises(BigmcError, match="BIGMC_CACHE_SIZE: 'much' is not a size"):
        open_copy("c").make_room(1)
