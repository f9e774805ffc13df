"""The store asks for what it asked for, piece by piece, and changes a disk call by call as it did.

Results of these operations are tested elsewhere: more calls, larger buffers or another order of calls give
the same results, in more time or memory, or lose data when a process is killed. After a change that is meant
to change the calls, run `python -m golden.record` in `tests/`.
"""

import json

import pytest

from .calls import RECORDED, reads, writes


@pytest.fixture(scope="module")
def recorded():
    found = json.loads(RECORDED.read_text())
    return {
        name: found[calls.removeprefix("as ")] if isinstance(calls, str) else calls
        for name, calls in found.items()
    }


def test_shards_are_asked_for_what_they_were(recorded):
    found = reads()
    assert found == {name: calls for name, calls in recorded.items() if name in found}


def test_a_disk_is_changed_as_it_was(recorded, tmp_path):
    found = writes(tmp_path)
    assert found == {name: calls for name, calls in recorded.items() if name in found}
