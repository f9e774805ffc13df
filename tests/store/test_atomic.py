"""Files that appear whole: what is there before, beside and after."""

import hashlib
import os
import threading

import pytest

from bigmc.errors import BusyError
from bigmc.store.files import disk
from bigmc.store.files.atomic import (
    IfBusy,
    exclusive,
    replacing,
    replacing_folder,
    write_atomic,
)
from bigmc.store.files.layout import file_entry, sha256


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_system_that_takes_no_folder_is_told_by_its_error(tmp_path, monkeypatch):
    """As /proc does: it says of a new folder that it does not exist."""

    def refuse(path):
        raise FileNotFoundError(2, "No such file or directory", path)

    monkeypatch.setattr(disk.calls, "mkdir", refuse)
    with pytest.raises(FileNotFoundError, match="new"):
        disk.make_folder(tmp_path / "new")
    with pytest.raises(FileNotFoundError, match="missing"):
        disk.make_folder(tmp_path / "missing" / "new")


def test_a_folder_is_made_where_its_parent_appears_meanwhile(tmp_path, monkeypatch):
    """Another process makes it after the system has said that it is missing."""
    make, others = disk.calls.mkdir, []

    def mkdir(path):
        if path == str(tmp_path / "a" / "b") and not others:
            others.append(path)
            make(str(tmp_path / "a"))
            raise FileNotFoundError(2, "No such file or directory", path)
        make(path)

    monkeypatch.setattr(disk.calls, "mkdir", mkdir)
    disk.make_folder(tmp_path / "a" / "b")
    assert others
    assert (tmp_path / "a" / "b").is_dir()


def test_readers_see_the_old_contents_until_the_new_are_whole(tmp_path):
    path = tmp_path / "file"
    write_atomic(path, b"old")
    with replacing(path) as file:
        file.write(b"ne")
        file.flush()
        assert path.read_bytes() == b"old"
        assert len(names(tmp_path)) == 2
        file.write(b"w")
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["file"]


def test_what_fails_leaves_nothing(tmp_path):
    path = tmp_path / "file"
    for before in ([], ["file"]):
        with pytest.raises(ZeroDivisionError), replacing(path) as file:
            file.write(bytes(1 // 0))
        assert names(tmp_path) == before
        write_atomic(path, b"old")
    assert path.read_bytes() == b"old"


def test_a_folder_is_put_in_its_place_before_the_disk_is_told_to_keep_it(tmp_path, monkeypatch):
    """A power cut takes a rename back until the folder around it is synced."""
    events, fsync, replace = [], os.fsync, os.replace
    parent = os.stat(tmp_path).st_ino

    def note(descriptor):
        events.append("sync" if os.fstat(descriptor).st_ino == parent else "other")
        fsync(descriptor)

    def renamed(source, target, **options):
        events.append("rename")
        replace(source, target, **options)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "replace", renamed)
    folder = tmp_path / "folder"
    (tmp_path / "folder.partial" / "left").mkdir(parents=True)
    for content in ("old", "new"):
        with replacing_folder(folder) as aside:
            (aside / "file").write_text(content)
            assert names(aside) == ["file"]
        assert (folder / "file").read_text() == content
        assert names(tmp_path) == ["folder"]
        assert events[-2:] == ["rename", "sync"]


def test_files_aside_are_removed_when_their_writer_is_dead(tmp_path):
    path = tmp_path / "fi[l]e"
    for other in (".fi[l]e.000.partial", ".file.000.partial", "fi[l]e.000.partial", ".fi[l]e.000"):
        (tmp_path / other).write_bytes(b"left")
    with replacing(path) as mine:
        mine.write(b"mine")
        assert ".fi[l]e.000.partial" not in names(tmp_path)
        write_atomic(path, b"theirs")  # whose writer finds the file of a living one
        assert path.read_bytes() == b"theirs"
    assert path.read_bytes() == b"mine"
    assert names(tmp_path) == sorted([".file.000.partial", "fi[l]e.000.partial", ".fi[l]e.000", "fi[l]e"])


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (3 << 20) + 7])
def test_digests_of_files_are_those_of_their_contents(size, tmp_path):
    content = os.urandom(size)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(content)
    assert sha256(tmp_path / "folder" / "file") == hashlib.sha256(content).hexdigest()
    entry = file_entry(tmp_path / "folder" / "file", tmp_path)
    assert (entry.path, entry.bytes, entry.sha256) == (
        "folder/file",
        size,
        hashlib.sha256(content).hexdigest(),
    )


def test_a_lock_is_held_by_one_and_waited_for_on_request(tmp_path):
    lock, entered = tmp_path / "wip" / "lock", []

    def wait():
        with exclusive(lock, IfBusy.WAIT):
            entered.append("second")

    with exclusive(lock):
        with pytest.raises(BusyError), exclusive(lock):
            pass
        second = threading.Thread(target=wait)
        second.start()
        second.join(0.3)
        assert second.is_alive()
        entered.append("first")
    second.join(30)
    assert entered == ["first", "second"]
    with exclusive(lock):
        pass
