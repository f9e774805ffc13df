"""Locks in folders that come and go."""

import shutil

import filelock

from bigmc.store.files.atomic import exclusive


def test_a_folder_removed_by_who_has_finished_is_made_again(tmp_path, monkeypatch):
    """As when the one before removes its folder just before the lock's file is opened."""
    lock, plain, removed = tmp_path / "wip" / "lock", filelock.UnixFileLock._acquire, []

    def acquire(held):
        if len(removed) < 3:
            removed.append(lock)
            shutil.rmtree(lock.parent)
        plain(held)

    monkeypatch.setattr(filelock.UnixFileLock, "_acquire", acquire)
    with exclusive(lock):
        assert lock.exists()
    assert removed  # once, where filelock makes the folder itself, as its older releases do
