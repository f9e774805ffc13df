"""Files of unfinished work: each vouches for its own contents only."""

import hashlib
import json

import pytest

from bigmc.errors import StoreError
from bigmc.store.files.work_file import read_work_file, write_work_file


def test_the_file_of_another_name_is_damaged(tmp_path):
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    write_work_file(first, {"bits": 18})
    write_work_file(second, {"bits": 20})
    first.rename(second)
    with pytest.raises(StoreError, match=r"second\.json is damaged, .*; delete the folder"):
        read_work_file(second)
    second.rename(first)
    assert read_work_file(first) == {"bits": 18}


def test_files_of_earlier_versions_are_read(tmp_path):
    text = json.dumps([1, 2]).encode()
    (tmp_path / "a.json").write_bytes(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
    assert read_work_file(tmp_path / "a.json") == [1, 2]
