"""Folders of unfinished work: what is a command's own is removed, and nothing else ever is."""

import pytest

from bigmc.errors import BusyError, DataError
from bigmc.store.files.work_folder import LOCK, WorkFolder, holds_only


@pytest.fixture
def work(tmp_path):
    return WorkFolder.of(tmp_path / "to" / "result.csv", ["part-*", "plan.json"])


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_work_stays_for_the_next_run_and_half_written_files_do_not(work, tmp_path):
    assert work.path == tmp_path / "to" / "result.csv.wip"
    with work.locked() as path:
        assert path == work.path
        (path / "part-1").write_bytes(b"1")
        (path / "part-2.partial").write_bytes(b"2")
        with pytest.raises(BusyError, match=r"writing .*result\.csv "), work.locked():
            pass
    assert names(work.path) == [LOCK, "part-1", "part-2.partial"]
    with work.locked():
        assert names(work.path) == [LOCK, "part-1"]
        work.forget()
        assert names(work.path) == [LOCK]
    work.clear()
    work.clear()  # there is nothing any more
    assert not work.path.exists()


@pytest.mark.parametrize(("content", "stays"), [(None, False), (b"", False), (b"1", True)])
def test_an_error_leaves_a_folder_only_with_work(work, content, stays):
    def fail():
        with work.locked() as path:
            if content is not None:
                (path / "part-1").write_bytes(content)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert work.path.exists() == stays


def test_the_folder_of_another_is_left_alone(work):
    work.path.mkdir(parents=True)
    (work.path / "thesis.tex").write_bytes(b"1")
    with pytest.raises(DataError, match="not a folder of unfinished work"), work.locked():
        pass
    work.clear()
    assert names(work.path) == ["thesis.tex"]


def test_a_folder_holds_only_its_names(tmp_path):
    assert holds_only(tmp_path / "none", [])
    (tmp_path / "file").write_bytes(b"1")
    assert not holds_only(tmp_path / "file", ["*"])
    assert holds_only(tmp_path, ["a", "fi*"])
    assert not holds_only(tmp_path, ["a"])
    (tmp_path / "file").rename(tmp_path / "file.partial")
    assert holds_only(tmp_path, ["a"])
